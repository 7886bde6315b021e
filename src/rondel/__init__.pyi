"""The public names: type checkers read this file, and `rondel/__init__.py` imports from it."""

from rondel.errors import RondelError as RondelError
from rondel.plan.plan import Plan as Plan
from rondel.run.analysis.compare import compare as compare
from rondel.run.analysis.plot import plot as plot
from rondel.run.playback.evaluate import evaluate as evaluate
from rondel.run.playback.record import record as record
from rondel.run.playback.watch import watch as watch
from rondel.run.policy.evaluation import Evaluation as Evaluation
from rondel.run.policy.policy import Policy as Policy
from rondel.run.preflight.explain import explain as explain
from rondel.run.profiling.profile import profile as profile
from rondel.run.session.run import Run as Run
from rondel.run.session.run import load as load
from rondel.run.training.hooks import Hook as Hook
from rondel.run.training.multi_seed import Runs as Runs
from rondel.run.training.train import resume as resume
from rondel.run.training.train import start as start
from rondel.run.training.train import train as train
from rondel.spaces import Box as Box
from rondel.spaces import Discrete as Discrete
from rondel.spaces import MultiBinary as MultiBinary
from rondel.spaces import MultiDiscrete as MultiDiscrete
from rondel.types import Algorithm as Algorithm
from rondel.types import Env as Env
from rondel.types import EnvSpec as EnvSpec
from rondel.types import Game as Game
from rondel.types import HostWorld as HostWorld
from rondel.types import Memory as Memory
from rondel.types import Network as Network
from rondel.types import Step as Step
from rondel.types import Trajectory as Trajectory

__version__: str
