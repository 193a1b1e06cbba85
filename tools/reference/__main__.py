"""Makes every fixture: python -m tools.reference, from the root of the repository."""

from . import chats, encoder, kept, models, ops, optimizers, placement

for part in (models, kept, encoder, optimizers, ops, placement, chats):
    part.main()
