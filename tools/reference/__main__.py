"""Makes every fixture: python -m tools.reference, from the root of the repository."""

from . import chats, encoder, exceptions, generation, models, ops, optimizers, placement, samplers

for part in (models, generation, exceptions, encoder, optimizers, ops, placement, chats, samplers):
    part.main()
