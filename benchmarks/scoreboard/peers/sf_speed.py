"""How fast Sample Factory trains: steps by time between the first fifth of them and the last, so
that the start of its processes does not count."""

import tempfile
import time

from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.train import make_runner


class Watch(AlgoObserver):
    """Notes how many steps were learned from, and when."""

    def __init__(self):
        self.seen = []

    def on_training_step(self, runner, training_iteration_since_resume):
        self.seen.append((time.monotonic(), sum(runner.env_steps.values())))
        # for --train_for_seconds: it compares them, but never counts them itself
        runner.total_train_seconds = self.seen[-1][0] - self.seen[0][0]


def steps_per_second(parse, env, steps, flags):
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        config = parse([
            f"--env={env}", "--experiment=speed", f"--train_dir={folder}", "--device=cpu",
            f"--train_for_env_steps={steps}", *flags,
        ])  # fmt: skip
        _, runner = make_runner(config)
        runner.register_observer(watch)
        runner.init()
        runner.run()
    t1, n1 = watch.seen[-1]
    (t0, n0), *_ = [seen for seen in watch.seen if seen[1] >= n1 // 5]
    return (n1 - n0) / (t1 - t0)
