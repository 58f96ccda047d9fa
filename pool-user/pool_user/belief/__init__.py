"""The belief of the backend about its pools: rules 1 to 8, pure. `README.md` beside this file has the
table."""

from pool_user.belief.admission import accepted as accepted
from pool_user.belief.admission import spoken_for as spoken_for
from pool_user.belief.rules import MAX_MEMBERS as MAX_MEMBERS
from pool_user.belief.rules import PoolRules as PoolRules
from pool_user.belief.rules import pool_handle as pool_handle
from pool_user.belief.rules import pool_name as pool_name
from pool_user.belief.state import Belief as Belief
