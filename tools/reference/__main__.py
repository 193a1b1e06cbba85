"""Makes every fixture: python -m tools.reference, from the root of the repository."""

from . import chats, completions, encoder, exceptions, models, ops, optimizers, placement, samplers, networks, schedules, state_dicts, steps, tensors, trained

for part in (models, exceptions, encoder, optimizers, ops, placement, chats, completions, samplers, networks, schedules, state_dicts, steps, tensors, trained):
    part.main()
