"""Tables and banners as text: tabulate, prettytable, rich, pyfiglet."""

import io

import pyfiglet
from prettytable import PrettyTable
from rich.console import Console
from rich.table import Table
from rich.tree import Tree
from tabulate import tabulate

rows = [[i, i**2, f"name {i}", i / 7] for i in range(25)]
for style in ("plain", "grid", "github", "latex", "html", "pipe"):
    print(tabulate(rows, headers=["n", "square", "name", "part"], tablefmt=style, floatfmt=".3f")[-160:])
table = PrettyTable(["n", "square", "name", "part"])
for row in rows:
    table.add_row(row)
table.sortby, table.align["name"] = "square", "r"
print(table.get_string(fields=["name", "n"])[-200:])
console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="256")
rich_table = Table(title="rich")
for heading in "abcd":
    rich_table.add_column(heading, style="bold red")
for row in rows:
    rich_table.add_row(*map(str, row))
console.print(rich_table)
tree = Tree("root")
for i in range(4):
    branch = tree.add(f"[green]{i}")
    branch.add("leaf")
console.print(tree)
text = console.file.getvalue()
print(len(text), sum(map(ord, text)))
for font in ("standard", "slant", "banner"):
    print(pyfiglet.figlet_format("ckpt", font=font))
