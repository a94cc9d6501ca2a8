"""Invented people and texts, seeded, with Faker."""

from faker import Faker

Faker.seed(99)
fake = Faker(["en_US", "de_DE"])
for _ in range(150):
    print(fake.name(), "|", fake.city(), "|", fake.job(), "|", fake.iban())
print(fake.paragraph(nb_sentences=5))
print(fake.simple_profile()["username"], fake.hexify("^^^^"), fake.pydecimal(left_digits=4, right_digits=2))
