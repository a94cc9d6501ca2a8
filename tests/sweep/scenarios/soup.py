"""A damaged page read and changed with Beautiful Soup."""

from bs4 import BeautifulSoup

PAGE = (
    "<html><head><title>T</title><body class='a b'><p id=1>one<p>two<b>bold<i>both</b>it</i><table><tr><td>x<td>y</table>"
    + "".join(f"<ul><li class='n{i % 3}'>item {i}<a href='/{i}'>link</a></ul>" for i in range(60))
)
for turn in range(4):
    soup = BeautifulSoup(PAGE, "html.parser" if turn % 2 else "html5lib")
    print(soup.title.string, len(soup.find_all("li")), [a["href"] for a in soup.select("li.n1 > a")][:5])
    for item in soup.find_all("li", class_="n2"):
        item.a.wrap(soup.new_tag("em"))
        item["data-x"] = str(len(item.text))
    for item in soup.find_all("li", class_="n0"):
        item.decompose()
    text = soup.prettify()
    print(turn, len(text), sum(map(ord, text)), soup.find("em").parent.get("data-x"))
