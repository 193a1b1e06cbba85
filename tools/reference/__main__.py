"""Makes every PyTorch fixture: python -m tools.reference, from the root of the repository."""

from . import encoder, models, ops, optimizers

for part in (models, encoder, optimizers, ops):
    part.main()
