"""Behaviour cloning in PyTorch: a network learns the action for an observation.

    make quickstart
    .venv/bin/pip install torch
    .venv/bin/python examples/behaviour_cloning_torch.py out/quickstart-*/datasets/*/1.0.0

It takes any log or dataset whose observations and actions are vectors. TensorFlow is not loaded.
"""

import argparse

import gymnasium
import numpy as np
import torch

import rlds.feeds
from rlds.normalization import normalize

FIELDS = ["observation", "action"]

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("data", help="a log or a dataset; `make quickstart` makes one, in out/")
parser.add_argument("--epochs", type=int, default=20, help="passes over the data")
parser.add_argument("--play", default="InvertedDoublePendulum-v5", help="environment to play in")
arguments = parser.parse_args()
try:
    table = rlds.feeds.open(arguments.data, fields=FIELDS)
except FileNotFoundError as missing:
    parser.error(f"{missing} `make quickstart` makes out/quickstart-*/datasets/*/1.0.0")

statistics = table.compute_statistics(FIELDS)
# The last step of an episode has no action.
samples = table.steps(only_real=True).normalize(statistics, fields=["observation"], floor=1e-3)
feed = rlds.feeds.Feed(samples, batch_size=256, seed=0, epochs=arguments.epochs)
print(feed.explain())

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
policy = torch.nn.Sequential(
    torch.nn.Linear(statistics["observation"].mean.size, 128),
    torch.nn.ReLU(),
    torch.nn.Linear(128, 128),
    torch.nn.ReLU(),
    torch.nn.Linear(128, statistics["action"].mean.size),
).to(device)
optimizer = torch.optim.Adam(policy.parameters())
losses = []
for count, batch in enumerate(feed.torch(pin_memory=device == "cuda"), 1):
    observation, action = (batch[name].to(device, non_blocking=True) for name in FIELDS)
    loss = torch.nn.functional.mse_loss(policy(observation.float()), action.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if count * 10 // len(feed) > (count - 1) * 10 // len(feed):
        print(f"batch {count} of {len(feed)}: loss {np.mean(losses):.4f}")
        losses = []

env = gymnasium.make(arguments.play)
(observation, _), total, over = env.reset(seed=0), 0.0, False
while not over:
    observation = normalize(observation, statistics["observation"], floor=1e-3)
    with torch.no_grad():
        action = policy(torch.tensor(observation, dtype=torch.float32, device=device))
    observation, reward, terminated, truncated, _ = env.step(action.cpu().numpy())
    total, over = total + reward, terminated or truncated
print(f"return of an episode: {total:.1f}")
