"""What the backend believes about its pools: rules 1 to 8, pure. `README.md` beside this file has the
table."""

from rspdns.belief.registrars import RegistrarState as RegistrarState
from rspdns.belief.registrars import Standing as Standing
from rspdns.belief.rules import BeliefEvent as BeliefEvent
from rspdns.belief.rules import PoolRules as PoolRules
from rspdns.belief.rules import Push as Push
from rspdns.belief.rules import Question as Question
from rspdns.belief.rules import Reply as Reply
from rspdns.belief.rules import Table as Table
from rspdns.belief.rules import sentinel_handle as sentinel_handle
from rspdns.belief.state import AT_ONCE as AT_ONCE
from rspdns.belief.state import Belief as Belief
