"""Workers under fire: real processes, a seeded schedule of what goes wrong, and a history that is checked."""

from __future__ import annotations
