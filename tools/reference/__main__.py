"""Makes every fixture: python -m tools.reference, from the root of the repository."""

from . import chats, encoder, exceptions, models, ops, optimizers, placement, samplers

for part in (models, exceptions, encoder, optimizers, ops, placement, chats, samplers):
    part.main()
