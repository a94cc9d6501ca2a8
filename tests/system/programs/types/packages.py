"""Objects of other packages that programs hold: by reference, with their state. Packages that are missing are left out."""

import importlib.util
import io

from cases import case, main


def needs(*names):
    def decorate(function):
        return case(function) if all(importlib.util.find_spec(name) for name in names) else function

    return decorate


@needs("networkx")
def graphs():
    import networkx as nx

    graph = nx.DiGraph([(1, 2), (2, 3)], name="g")
    graph.add_node(4, data=[1])
    walk = iter(graph.edges)
    view, n = graph.nodes, 4
    while True:
        n += 1
        graph.add_edge(n, 1, weight=n)
        graph.nodes[4]["data"].append(n)
        yield sorted(graph.edges), view[4], nx.shortest_path(graph, n, 3), len(view), graph.graph


@needs("sympy")
def expressions():
    import sympy

    x, y = sympy.symbols("x y", positive=True)
    expression, dummy, n = sympy.sin(x) ** 2 + y, sympy.Dummy("d"), 0
    function, matrix = sympy.Function("f"), sympy.Matrix([[x, 1], [0, y]])
    while True:
        n += 1
        expression = expression.diff(x) + x**n
        yield (
            str(expression),
            sympy.simplify(expression).subs(x, 0),
            str(function(x).diff(x)),
            matrix.det() == x * y,
            sympy.symbols("x", positive=True) == x,
            dummy == dummy,
            sympy.S.Zero is (x - x),
            sympy.oo is sympy.S.Infinity,
        )


@needs("sklearn")
def estimators():
    import numpy as np
    from sklearn.cluster import KMeans
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    points = np.random.RandomState(0).normal(size=(40, 3))
    labels = (points[:, 0] > 0).astype(int)
    forest = RandomForestClassifier(4, random_state=0).fit(points, labels)
    stream, pipeline = (
        SGDClassifier(random_state=1),
        make_pipeline(StandardScaler(), KMeans(2, n_init=1, random_state=0)).fit(points),
    )
    while True:
        stream.partial_fit(points, labels, classes=[0, 1])
        yield (
            forest.predict(points)[:9].tolist(),
            stream.coef_.round(6).tolist(),
            pipeline.predict(points)[:5].tolist(),
            forest.get_params()["n_estimators"],
        )


@needs("matplotlib", "numpy", "PIL")
def figures():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["lines.linewidth"] = 3
    figure, axes = plt.subplots()
    (line,) = axes.plot([1, 2, 3], [4, 5, 6], label="l")
    n = 0
    while True:
        n += 1
        line.set_ydata([n, n, n])
        axes.set_title(f"t{n}")
        out = io.BytesIO()
        figure.savefig(out, format="raw", dpi=20)
        yield (
            sum(out.getvalue()),
            axes.get_title(),
            line.axes is axes,
            line.get_label(),
            plt.rcParams["lines.linewidth"],
            plt.fignum_exists(figure.number),
            plt.gcf() is figure,
        )


@needs("PIL")
def images():
    from PIL import Image

    image = Image.new("RGB", (4, 4), (1, 2, 3))
    n = 0
    while True:
        n += 1
        image.putpixel((0, 0), (n, n, n))
        yield list(image.getdata())[:6], image.mode, image.size


@needs("attr")
def attrs_classes():
    import attr
    import attrs

    @attrs.define
    class Slotted:
        x: int
        y: list = attrs.Factory(list)

    @attr.s(frozen=True, cache_hash=True)
    class Old:
        a = attr.ib(default=attr.NOTHING, validator=attr.validators.instance_of(int))

    slotted, old = Slotted(1), Old(3)
    table = {old: 1}
    while True:
        slotted.y.append(1)
        try:
            Old("s")
        except TypeError:
            refused = True
        yield (
            slotted,
            old,
            table[Old(3)],
            attrs.asdict(slotted),
            attrs.evolve(old, a=4),
            refused,
            attrs.fields(Slotted).y.name,
        )


@needs("pydantic")
def pydantic_models():
    import typing

    import pydantic

    class Inner(pydantic.BaseModel):
        v: int = 1

    class Model(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(validate_assignment=True)
        name: str
        inner: Inner = Inner()
        many: typing.List[int] = pydantic.Field(default_factory=list)
        _private: int = pydantic.PrivateAttr(0)

        @pydantic.field_validator("name")
        @classmethod
        def check(cls, value):
            return value.upper()

        @pydantic.computed_field
        def both(self) -> str:
            return f"{self.name}{self.inner.v}"

    model, n = Model(name="n"), 0
    while True:
        n += 1
        model._private += 1
        model.many.append(n)
        model.name = f"n{n}"
        try:
            Model(name=3)
        except pydantic.ValidationError as error:
            count = error.error_count()
        yield (
            model.model_dump_json(),
            model._private,
            model.model_copy(update={"name": "z"}).both,
            count,
            Model.model_validate({"name": "q"}).name,
            sorted(Model.model_fields),
        )


if __name__ == "__main__":
    main()
