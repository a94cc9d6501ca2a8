"""Packages of the sciences: molecules, optimisation, units, language, learning; see :mod:`tests.libraries.library`."""

from __future__ import annotations

from tests.libraries.library import Library

SCIENCE = (
    # ---- molecules and life
    Library("biopython", "Bio", "sequences, records, an aligner, a parser half-way", """
import io
from Bio import Align, SeqIO
from Bio.Seq import Seq
s = Seq("ATGGCC"); a = Align.PairwiseAligner(); a.match_score = 2; a.open_gap_score = -1
it = SeqIO.parse(io.StringIO(">a\\nAC\\n>b\\nGT\\n"), "fasta"); r = next(it)
---
print(s.translate(), a.score("ACGT", "AGT"), r.id, [x.id for x in it], a.match_score)
"""),
    Library("biopython (alignments)", "Bio", "alignments, listed half-way", """
from Bio import Align
found = Align.PairwiseAligner().align("ACGTTGCA", "AGTGA"); one = next(found); second = found[1]
---
print(len(found), found.score, one, second, [str(each) for each in found], found[0].coordinates.tolist())
found.rewind(); print([each.score for each in found])
"""),
    Library("rdkit", "rdkit", "molecules in C++, fingerprints", """
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator
m = Chem.MolFromSmiles("CCO"); m.SetProp("name", "x"); g = rdFingerprintGenerator.GetMorganGenerator(2, fpSize=64).GetFingerprint(m)
---
print(Chem.MolToSmiles(m), round(Descriptors.MolWt(m), 3), m.HasProp("name"), list(g.GetOnBits()))
"""),
    Library("rdkit (atoms)", "rdkit", "an atom of a molecule, a molecule that is being edited", """
from rdkit import Chem
m = Chem.RWMol(Chem.MolFromSmiles("CCO")); a = m.GetAtomWithIdx(2)
---
a.SetAtomicNum(7); m.AddAtom(Chem.Atom(6)); print(Chem.MolToSmiles(m))
"""),
    Library("MDAnalysis", "MDAnalysis", "a universe in memory, groups of atoms", """
import MDAnalysis as mda, numpy as np
u = mda.Universe.empty(4, trajectory=True); u.add_TopologyAttr("name", list("ABAB")); u.atoms.positions = np.arange(12.0).reshape(4, 3)
g = u.select_atoms("name A")
---
g.translate([1, 0, 0]); print(u.atoms.positions.sum(), g.names, g.center_of_geometry(), g.universe is u)
"""),
    Library("MDAnalysis (updating groups)", "MDAnalysis", "groups that are updated at each frame", """
import MDAnalysis as mda, numpy as np
u = mda.Universe.empty(4, n_residues=2, atom_resindex=[0, 0, 1, 1], trajectory=True); u.add_TopologyAttr("resid", [1, 2])
u.atoms.positions = np.arange(12.0).reshape(4, 3); g = u.select_atoms("around 6 resid 2", updating=True); n = len(g)
---
g.update_selection(); print(n, g.ix, g.universe is u)
"""),
    Library("MDAnalysis (written files)", "MDAnalysis", "trajectories that have been written, and are read", """
import MDAnalysis as mda, numpy as np, os
u = mda.Universe.empty(4, trajectory=True); u.dimensions = [9, 9, 9, 90, 90, 90]; u.atoms.positions = np.ones((4, 3))
d = mda.Writer("t.dcd", 4); x = mda.Writer("t.xtc", 4)
for k in range(3): d.write(u.atoms); x.write(u.atoms)
d.close(); x.close()
v = mda.Universe.empty(4); v.load_new("t.dcd"); it = iter(v.trajectory); next(it)
---
print(os.path.getsize("t.dcd"), os.path.getsize("t.xtc"), [(t.frame, float(v.atoms.positions.sum())) for t in it])
"""),
    Library("simpy", "simpy", "an environment, half-way, with its processes", """
import simpy
log = []
def car(env, name, pump):
    for k in range(3):
        with pump.request() as r:
            yield r
            yield env.timeout(2)
            log.append((name, env.now))
env = simpy.Environment(); pump = simpy.Resource(env, 1)
for n in "ab": env.process(car(env, n, pump))
env.run(5)
---
env.run(); print(log)
"""),
    # ---- optimisation
    Library("cvxpy", "cvxpy", "a problem that has been solved, to be solved with another parameter", """
import clarabel, cvxpy as cp
x = cp.Variable(2); p = cp.Parameter(nonneg=True, value=1); q = cp.Problem(cp.Minimize(cp.sum_squares(x - 3)), [cp.sum(x) <= p])
q.solve(solver=cp.CLARABEL)
---
p.value = 2; q.solve(solver=cp.CLARABEL); print(x.value.round(4), round(q.value, 4), q.status)
""", "ckpt.register_type(clarabel.DefaultSolver, lambda solver: None, lambda _: None)"),
    Library("PuLP", "pulp", "a linear program", """
import pulp
p = pulp.LpProblem("p", pulp.LpMaximize); x = pulp.LpVariable("x", 0, 4); y = pulp.LpVariable("y", 0, 3); p += x + 2 * y; p += x + y <= 5
---
p += x - y >= -1; p.writeLP("p.lp"); print(open("p.lp").read(), p.variables()[0] is x, pulp.value(x))
"""),
    Library("ortools (CP-SAT)", "ortools", "a model with constraints, in C++", """
from ortools.sat.python import cp_model
m = cp_model.CpModel(); x = m.new_int_var(0, 9, "x"); y = m.new_int_var(0, 9, "y"); m.add(x + y <= 9); m.maximize(2 * x + y)
---
m.add(x <= 5); s = cp_model.CpSolver(); s.parameters.num_workers = 1; s.solve(m); print(s.value(x), s.value(y))
"""),
    Library("ortools (linear)", "ortools", "a solver of linear programs, in C++", """
from ortools.linear_solver import pywraplp
s = pywraplp.Solver.CreateSolver("GLOP"); x = s.NumVar(0, 4, "x"); s.Maximize(x)
---
s.Solve(); print(x.solution_value())
"""),
    Library("Pyomo", "pyomo", "a model, with its sets and rules", """
import pyomo.environ as pyo
m = pyo.ConcreteModel(); m.s = pyo.Set(initialize=[1, 2, 3]); m.x = pyo.Var(m.s, bounds=(0, 5), initialize=1)
m.c = pyo.Constraint(m.s, rule=lambda m, k: m.x[k] * k <= 4); m.o = pyo.Objective(expr=sum(m.x[k] for k in m.s))
---
m.x[1] = 3; m.x[2].fix(2); print(pyo.value(m.o), pyo.value(m.c[2].body), m.x[2].fixed, m.x[1].parent_block() is m)
"""),
    Library("lmfit", "lmfit", "a fit, parameters with expressions", """
import numpy as np
from lmfit.models import LinearModel
m = LinearModel(); x = np.arange(9.0); p = m.make_params(slope=1, intercept=0); p.add("twice", expr="2 * slope"); r = m.fit(2 * x + 1, p, x=x)
---
p["slope"].value = 5; print(p["twice"].value, round(r.params["slope"].value, 5), round(float(r.eval(x=10.0)), 4))
print(round(m.fit(3 * x, p, x=x).best_values["slope"], 4))
"""),
    Library("optuna", "optuna", "a study in memory, between two trials", """
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
s = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=3))
def f(t): return (t.suggest_float("x", -5, 5) - 1) ** 2
s.optimize(f, n_trials=4)
---
s.optimize(f, n_trials=4); t = s.ask(); s.tell(t, f(t)); print([round(t.value, 9) for t in s.trials], optuna.logging.get_verbosity())
"""),
    # ---- units, numbers, signals
    Library("pint", "pint", "quantities and their registry", """
import pint
u = pint.UnitRegistry(); u.define("smoot = 1.7 * meter"); q = 3 * u.smoot; v = u("2 km/hour")
---
print(q.to("m"), v.to_base_units(), (q / v).dimensionality, q._REGISTRY is u, u.smoot == q.units)
"""),
    Library("uncertainties", "uncertainties", "numbers that are correlated", """
from uncertainties import covariance_matrix, ufloat, umath
x, y = ufloat(1, 0.1), ufloat(2, 0.2); z = x * y - x
---
print(z, z - z, umath.sin(z), z.derivatives[x], covariance_matrix([x, z])[0][1])
"""),
    Library("pyFFTW", "pyfftw", "a planned transform, in C", """
import numpy as np, pyfftw
a = pyfftw.empty_aligned(8, "complex128"); b = pyfftw.empty_aligned(8, "complex128"); f = pyfftw.FFTW(a, b); a[:] = np.arange(8)
---
print(f().round(6), b is f.output_array)
"""),
    Library("pyFFTW (builders)", "pyfftw", "arrays, transforms that are made where they are used", """
import numpy as np, pyfftw
a = pyfftw.empty_aligned(8, "complex128"); a[:] = np.arange(8); b = pyfftw.interfaces.numpy_fft.fft(a)
---
print(pyfftw.interfaces.numpy_fft.ifft(b).real.round(6), a.sum())
"""),
    Library("hmmlearn", "hmmlearn", "a fitted model, its generator", """
import numpy as np
from hmmlearn import hmm
X = np.random.default_rng(1).normal(size=(60, 1)); r = np.random.RandomState(3); m = hmm.GaussianHMM(2, n_iter=5, random_state=r).fit(X)
---
print(m.sample(3)[0].round(6).tolist(), round(m.score(X), 5), m.random_state is r)
"""),
    Library("einops", "einops", "patterns, layers", """
import numpy as np
from einops import rearrange, reduce
a = rearrange(np.arange(24), "(a b c) -> a b c", a=2, b=3)
---
print(reduce(a, "a b c -> b", "sum"), rearrange(a, "a b c -> c (b a)").shape)
"""),
    # ---- learning and language
    Library("gpytorch", "gpytorch", "a model in training, its settings", """
import gpytorch, torch
class M(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood); self.mean = gpytorch.means.ConstantMean(); self.cov = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    def forward(self, x): return gpytorch.distributions.MultivariateNormal(self.mean(x), self.cov(x))
x = torch.linspace(0, 1, 9); k = gpytorch.likelihoods.GaussianLikelihood(); m = M(x, torch.sin(x * 6), k); m.train(); k.train()
o = torch.optim.Adam(m.parameters(), lr=0.1); f = gpytorch.mlls.ExactMarginalLogLikelihood(k, m)
def step():
    o.zero_grad(); l = -f(m(x), m.train_targets); l.backward(); o.step(); return l.item()
step()
---
print([round(step(), 5) for _ in range(3)])
"""),
    Library("catboost", "catboost", "a trained model, a pool", """
import numpy as np
from catboost import CatBoostRegressor, Pool
X = np.random.default_rng(1).random((60, 3)); p = Pool(X, X.sum(1)); m = CatBoostRegressor(iterations=4, thread_count=1, verbose=0, allow_writing_files=False).fit(p)
del p
---
print(m.predict(X)[:3].round(6), m.tree_count_)
"""),
    Library("catboost (data)", "catboost", "data in C++", """
import numpy as np
from catboost import Pool
X = np.random.default_rng(1).random((60, 3)); p = Pool(X, X.sum(1))
---
print(p.num_row(), p.get_label()[:2])
"""),
    Library("safetensors", "safetensors", "a file that is read by Rust", """
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
save_file({"a": np.arange(4.0)}, "a.safetensors"); f = safe_open("a.safetensors", "np")
---
print(f.get_tensor("a"))
"""),
    Library("safetensors (arrays)", "safetensors", "arrays that have been read", """
import numpy as np
from safetensors.numpy import load_file, save_file
save_file({"a": np.arange(4.0)}, "a.safetensors"); d = load_file("a.safetensors")
---
d["a"][0] = 7; save_file(d, "a.safetensors"); print(load_file("a.safetensors"))
"""),
    Library("tokenizers", "tokenizers", "a tokenizer, trained, in Rust", """
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
t = Tokenizer(models.BPE(unk_token="?")); t.pre_tokenizer = pre_tokenizers.Whitespace()
t.train_from_iterator(["one two three two one"] * 3, trainers.BpeTrainer(vocab_size=20, special_tokens=["?"], show_progress=False))
e = t.encode("one two")
---
t.add_tokens(["extra"]); print(t.encode("one extra").tokens, e.ids, t.get_vocab_size(), t.decode(e.ids))
"""),
    Library("sentencepiece", "sentencepiece", "a model, in C++", """
import io, sentencepiece as spm
b = io.BytesIO(); words = ["one two three two one", "four five six five four", "one six two five"]
spm.SentencePieceTrainer.train(sentence_iterator=iter(words), model_writer=b, vocab_size=30, minloglevel=9, hard_vocab_limit=False)
p = spm.SentencePieceProcessor(model_proto=b.getvalue())
---
print(p.encode("one two five"), p.decode(p.encode("six")), p.get_piece_size())
"""),
    Library("nltk", "nltk", "counts, grammars, a stemmer", """
import nltk
f = nltk.FreqDist("abracadabra"); g = nltk.CFG.fromstring("S -> 'a' S | 'b'"); s = nltk.PorterStemmer()
c = nltk.ConditionalFreqDist((len(w), w) for w in ["a", "bb", "cc"])
---
f.update("zzz"); print(f.most_common(3), [str(t) for t in g.productions()], s.stem("running"), sorted(c[2]), f.N())
"""),
    Library("spacy", "spacy", "a pipeline, documents, a matcher", """
import spacy, spacy.lang.en, spacy.pipeline, spacy.tokenizer
from spacy.matcher import Matcher
n = spacy.blank("en"); n.add_pipe("sentencizer"); d = n("One cat. Two dogs."); s = list(d.sents)[1]; w = d[4]; m = Matcher(n.vocab); m.add("x", [[{"LOWER": "cat"}]])
---
print([t.text for t in s], s.doc is d, w.text, m(n("A cat"))[0][1:], d[1].text, d.vocab is n.vocab, n.pipe_names, n("Three. Four.")[0].is_title)
"""),
    Library("spacy (blank)", "spacy", "a pipeline", """
import spacy, spacy.lang.en, spacy.pipeline, spacy.tokenizer
n = spacy.blank("en"); n.add_pipe("sentencizer")
---
print([t.text for t in n("One cat. Two dogs.")], n.pipe_names)
"""),
    Library("rapidfuzz", "rapidfuzz", "results, edit operations", """
from rapidfuzz import distance, fuzz, process
c = ["one", "two", "three"]; e = distance.Levenshtein.editops("one", "tone"); r = process.extract("on", c, limit=2); it = process.extract_iter("two", c); next(it)
---
print(r, list(e), fuzz.ratio("one", "tone"), list(it), e.apply("one", "tone"))
"""),
)  # fmt: skip
