"""Makes every fixture: python -m tools.reference, from the root of the repository."""

from . import chats, encoder, models, ops, optimizers, placement

for part in (models, encoder, optimizers, ops, placement, chats):
    part.main()
