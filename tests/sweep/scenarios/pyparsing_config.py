"""A configuration language parsed with pyparsing."""

import pyparsing as pp

name = pp.Word(pp.alphas, pp.alphanums + "_")
number = pp.pyparsing_common.number
text = pp.QuotedString('"')
value = pp.Forward()
items = pp.Group(pp.Suppress("[") + pp.Optional(pp.DelimitedList(value)) + pp.Suppress("]"))
value <<= number | text | items | name
pair = pp.Group(name("key") + pp.Suppress("=") + value("value") + pp.Suppress(";"))
section = pp.Group(name("name") + pp.Suppress("{") + pp.ZeroOrMore(pair)("pairs") + pp.Suppress("}"))
config = pp.OneOrMore(section)
config.ignore(pp.python_style_comment)
for size in range(1, 12, 2):
    source = "\n".join(
        f'part{i} {{ a = {i}; b = [1, 2.5, "x{i}", [y, z]]; # comment\n c = "t"; }}' for i in range(size)
    )
    parsed = config.parse_string(source, parse_all=True)
    print(size, parsed.as_list()[-1])
    for one in parsed[:2]:
        print(one.name, [(p.key, p.value if isinstance(p.value, (int, str)) else "…") for p in one.pairs])
