"""A recurrent network over characters: embeddings, LSTM, packed sequences, the hidden state carried on, AdamW."""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

SCALE = int(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(11)
TEXT = "the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs. " * 3
letters = sorted(set(TEXT))
codes = torch.tensor([letters.index(each) for each in TEXT])


class Reader(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.embedding = nn.Embedding(count, 12)
        self.lstm = nn.LSTM(12, 24, num_layers=2, batch_first=True, dropout=0.1)
        self.out = nn.Linear(24, count)

    def forward(self, x, lengths, state=None):
        packed = pack_padded_sequence(self.embedding(x), lengths, batch_first=True)
        found, state = self.lstm(packed, state)
        return self.out(pad_packed_sequence(found, batch_first=True)[0]), state


model = Reader(len(letters))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
state = None
for step in range(30 * SCALE):
    place = (step * 17) % (len(codes) - 40)
    x = torch.stack([codes[place + shift : place + shift + 16] for shift in (0, 8)])
    y = torch.stack([codes[place + shift + 1 : place + shift + 17] for shift in (0, 8)])
    found, state = model(x, torch.tensor([16, 16]), state)
    state = tuple(each.detach() for each in state)
    loss = nn.functional.cross_entropy(found.transpose(1, 2), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f} {state[0].norm().item():.6f}", flush=True)
