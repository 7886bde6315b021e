"""The ranges of fields: one name has one range, whichever algorithm has the field."""

from __future__ import annotations

from typing import Any

from rondel.errors import at_least, from_zero_to_one

_LEAST = {
    0: """
        burn_in clip clip_c clip_rho critic_rate ladder learning_rate max_grad_norm noise overlap
        policy_rate priority_exponent target_noise target_noise_clip temperature_rate
        updates_per_step warmup weight_decay
    """,
    1: """
        anneal_steps batch capacity critics elites epochs epsilon_steps importance_steps iterations
        longest memory_size minibatches n_step older_every policy_every rollout samples sequence
        simulations target_every top updates
    """,
    2: "atoms considered",
    1e-8: "sigma",
    1e-6: "temperature",
}
_FROM_ZERO_TO_ONE = """
    demo_ratio discount epsilon epsilon_end epsilon_start gae_lambda importance_start priority_mix
    stray target_rate trace_lambda value_lambda
"""


def check_ranges(config: Any) -> None:
    """Refuse a field outside of its range; None passes. Hidden layers have a unit or more."""

    def there(names: str) -> dict[str, Any]:
        return {name: getattr(config, name) for name in names.split() if hasattr(config, name)}

    for minimum, names in _LEAST.items():
        at_least(minimum, **there(names))
    from_zero_to_one(**there(_FROM_ZERO_TO_ONE))
    at_least(1, hidden=min(config.hidden, default=1))
