"""A language of shapes described to textX, and read."""

from textx import metamodel_from_str

metamodel = metamodel_from_str(
    "Model: shapes+=Shape; Shape: Circle | Line; Circle: 'circle' name=ID r=NUMBER; Line: 'line' name=ID ends*=Point; "
    "Point: '(' x=INT ',' y=INT ')';"
)
for size in (3, 12, 40):
    model = metamodel.model_from_str(
        " ".join(f"circle c{i} {i}.5 line l{i} ({i},2) (3,{i})" for i in range(size))
    )
    print(
        [(type(s).__name__, s.name) for s in model.shapes][-2:],
        sum(len(getattr(s, "ends", [])) for s in model.shapes),
    )
