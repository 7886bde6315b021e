"""Networks that see images: what they compute, what they take, what they refuse."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marks import few_of
from rondel.errors import RondelError
from rondel.nets import images
from rondel.nets.torso import make_torso
from rondel.ops import random
from rondel.spaces import MASK, Box, Discrete, MultiBinary, zeros


def box(*shape, dtype="uint8"):
    high = 255 if dtype == "uint8" else 1
    return Box(np.zeros(shape, dtype), np.full(shape, high, dtype), dtype)


def observe(space, *batch):
    """Random observations of a Box."""
    numbers = np.random.default_rng(0).uniform(size=(*batch, *space.shape))
    scale = 255 if space.dtype == "uint8" else 2 if space.dtype == "bool" else 1
    return (numbers * scale).astype(space.dtype)


def build(network):
    params = jax.jit(network.init)(random.key(0))
    # a bias that is not zero, so that it is seen
    return jax.tree.map(lambda x: x + 0.1 if x.ndim == 1 else x, params)


def conv(layer, x, stride=1, padding="SAME"):
    axes = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, layer["w"], (stride,) * 2, padding, dimension_numbers=axes)
    return y + layer["b"].reshape(1, 1, 1, -1)


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def network_of(kind, space):
    return images.network(space, images.TRUNKS[kind])[0]


def plain(kind, params, x):
    """The papers' networks, with `lax`, for x [n, h, w, c] from 0 to 1."""
    relu = jax.nn.relu
    ((*layers, dense),) = params
    if kind == "nature":
        for layer, stride in zip(layers, (4, 2, 1), strict=True):
            x = relu(conv(layer, x, stride, "VALID"))
    elif kind == "minatar":
        x = relu(conv(layers[0], x, 1, "VALID"))
    elif kind == "board":
        for layer in layers:
            x = relu(conv(layer, x, 1, "VALID"))
    else:
        while layers:
            begin, a, b, c, d, *layers = layers
            x = pool(conv(begin, x))
            x = x + conv(b, relu(conv(a, relu(x))))
            x = x + conv(d, relu(conv(c, relu(x))))
        x = relu(x)
    out = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1) @ dense["w"]
    return relu(out + dense["b"].reshape(1, -1))


KINDS = {"nature": (40, 44, 3), "impala": (13, 10, 3), "minatar": (10, 10, 4), "board": (6, 7, 2)}
WIDTHS = {"nature": 512, "impala": 256, "minatar": 128, "board": 256}


@pytest.mark.parametrize("rows", few_of([3, 19], [19]))
@pytest.mark.parametrize("kind", KINDS)
def test_features_and_gradients_are_those_of_the_paper(kind, rows):
    space = box(*KINDS[kind])
    network, _ = images.network(space, images.TRUNKS[kind]._replace(chunk=8))
    params, obs = build(network), observe(space, rows)

    def loss(apply, params):
        out = apply(params)
        return jnp.mean(jnp.sin(out)), out

    def both(apply):
        return jax.jit(jax.value_and_grad(partial(loss, apply), has_aux=True))(params)

    (_, out), grads = both(lambda p: network.apply(p, jnp.asarray(obs)))
    (_, expected), expected_grads = both(
        lambda p: plain(kind, p, jnp.asarray(obs, jnp.float32) / 255)
    )
    assert out.shape == (rows, WIDTHS[kind])
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)

    def close(ours, theirs):
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * float(jnp.abs(theirs).max()))

    jax.tree.map(close, grads, expected_grads)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (1, 2, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_leading_axes(kind, batch):
    space = box(*KINDS[kind])
    network = network_of(kind, space)
    params = jax.eval_shape(network.init, random.key(0))
    out = jax.eval_shape(network.apply, params, observe(space, *batch))
    assert out.shape == (*batch, WIDTHS[kind])


def test_rows_of_a_batch_stay_apart():
    space = box(10, 10, 2)
    network = network_of("minatar", space)
    params, obs = build(network), observe(space, 2, 3)
    out = jax.jit(network.apply)(params, obs)
    for i in range(2):
        for j in range(3):
            alone = network.apply(params, obs[i, j])
            np.testing.assert_allclose(out[i, j], alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_channels_first_or_last_are_the_same_image(kind):
    high, wide, channels = KINDS[kind]
    last, first = box(high, wide, channels), box(channels, high, wide)
    one, two = network_of(kind, last), network_of(kind, first)
    params, obs = build(one), observe(last, 2)
    seen = jax.jit(two.apply)(params, np.moveaxis(obs, -1, 1))
    np.testing.assert_allclose(seen, jax.jit(one.apply)(params, obs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("one", [(40, 44, 3), (3, 40, 44)])
def test_stacked_images_are_one_with_the_channels_of_all(one, batch):
    stack = box(2, *one)
    obs = observe(stack, *batch)
    rows = obs.reshape(-1, *stack.shape)
    last = rows if one[-1] == 3 else rows.transpose(0, 1, 3, 4, 2)
    channels = last.transpose(0, 2, 3, 1, 4).reshape(-1, 40, 44, 6)  # those of the older first
    params = build(network_of("nature", box(40, 44, 6)))
    out = network_of("nature", stack).apply(params, obs)
    assert out.shape == (*batch, 512)
    expected = plain("nature", params, jnp.asarray(channels, jnp.float32) / 255)
    np.testing.assert_allclose(out.reshape(-1, 512), expected, rtol=1e-4, atol=1e-5)


def test_bytes_of_two_axes_are_an_image_of_one_channel():
    space = box(40, 44)
    network = network_of("nature", space)
    params, obs = build(network), observe(space, 2)
    expected = plain("nature", params, jnp.asarray(obs, jnp.float32)[..., None] / 255)
    np.testing.assert_allclose(network.apply(params, obs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((4, 84, 84), True),
        ((84, 84, 4), False),
        ((210, 160, 3), False),
        ((3, 210, 160), True),
        ((1, 84, 84), True),
        ((10, 10, 10), False),
        ((6, 7, 2), False),
        ((8, 8, 119), False),
        ((20, 4, 3), False),
        ((3, 35, 90), True),
        ((9, 2, 1), False),
    ],
)
def test_what_is_square_is_the_image_else_the_smaller_axis_is_channels(shape, first):
    assert images.channels_first(shape) == first


@pytest.mark.parametrize("dtype", ["float32", "bool", "int32"])
def test_other_numbers_are_taken_as_they_are(dtype):
    space = box(10, 10, 4, dtype=dtype)
    network = network_of("minatar", space)
    params, obs = build(network), observe(space, 2)
    out = jax.jit(network.apply)(params, obs)
    np.testing.assert_allclose(
        out, plain("minatar", params, jnp.asarray(obs, jnp.float32)), rtol=1e-4, atol=1e-5
    )


def test_bytes_that_a_wrapper_made_numbers_are_not_scaled_again():
    network = network_of("minatar", box(10, 10, 4))
    params, obs = build(network), observe(box(10, 10, 4, dtype="float32"), 2)
    out = jax.jit(network.apply)(params, obs)
    np.testing.assert_allclose(out, plain("minatar", params, obs), rtol=1e-4, atol=1e-5)


def test_of_a_tree_images_are_seen_and_all_else_is_encoded():
    space = {
        "speed": box(2, dtype="float32"),
        "eyes": (box(10, 10, 3), box(1, 8, 9)),
        "gear": Discrete(3),
        MASK: MultiBinary((4,)),
    }
    network, size = make_torso("minatar", space)
    params = build(network)
    obs = zeros(space, 2)
    obs["eyes"] = (observe(box(10, 10, 3), 2), observe(box(1, 8, 9), 2))
    obs["speed"][1] = 7.0, 8.0
    obs["gear"][1] = 2
    out = np.asarray(jax.jit(network.apply)(params, obs))
    assert out.shape == (2, size) == (2, 2 * 128 + 3 + 2)
    # by name: eyes, gear, speed
    assert out[1, 256:].tolist() == [0.0, 0.0, 1.0, 7.0, 8.0]
    left = network_of("minatar", box(10, 10, 3)).apply(params[:1], obs["eyes"][0])
    right = network_of("minatar", box(1, 8, 9)).apply(params[1:], obs["eyes"][1])
    np.testing.assert_allclose(out[:, :128], left, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out[:, 128:256], right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_begin_orthogonal(kind):
    for layer in jax.jit(network_of(kind, box(*KINDS[kind])).init)(random.key(0))[0]:
        w = np.asarray(layer["w"], np.float64).reshape(-1, layer["w"].shape[-1])
        gram = w @ w.T if w.shape[0] < w.shape[1] else w.T @ w
        gain = gram[0, 0]
        np.testing.assert_allclose(gram, gain * np.eye(len(gram)), atol=1e-4)
        # 2 for what a relu follows; a residual block adds a third as much, being one of three pairs
        assert gain == pytest.approx(2.0, rel=1e-3) or gain == pytest.approx(1 / 3, rel=1e-3)
        assert (np.asarray(layer["b"]) == 0.0).all()


@pytest.mark.parametrize(
    ("kind", "space", "words"),
    [
        (
            "nature",
            box(10, 10, 4),
            ["36x36", "(10, 10, 4) is 10x10", "impala or minatar or board or mlp"],
        ),
        ("nature", box(3, 35, 90), ["36x36", "35x90"]),
        ("nature", box(5, dtype="float32"), ["image", "three axes", "(5,)", "mlp"]),
        ("impala", {"a": Discrete(3), "b": box(4, 84)}, ["image", "(), (4, 84)", "mlp"]),
        ("impala", box(84, 84, dtype="float32"), ["bytes of two or four", "(84, 84)", "mlp"]),
        ("minatar", box(2, 9, 1), ["3x3", "2x9", "impala or mlp"]),
        ("minatar", (box(10, 10, 3), box(9, 2, 1)), ["3x3", "9x2"]),
        ("board", box(3, 3, 2), ["4x4", "3x3", "impala or minatar or mlp"]),
        ("resnet", box(84, 84, 3), ["resnet", "auto, mlp, nature, impala, minatar or board"]),
    ],
)
def test_what_can_not_be_seen_is_refused_with_what_would_work(kind, space, words):
    with pytest.raises(RondelError) as refusal:
        make_torso(kind, space)
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("space", "width"),
    [
        (box(5, dtype="float32"), 7),
        (box(84, 84), 512),
        (box(84, 84, dtype="float32"), 7),
        (box(4, 128), 7),  # such as stacked bytes of Atari's memory
        (box(4, 84, 84, 3), 512),
        (box(2, 3, 84, 84), 512),
        (box(36, 36, 3), 512),
        (box(10, 10, 4), 128),
        ((box(36, 36, 3), box(10, 10, 4)), 256),
        (box(2, 2, 1), 7),
    ],
)
def test_auto_takes_what_fits(space, width):
    network, size = make_torso("auto", space, (9, 7), jnp.tanh)
    assert size == width
    params = jax.eval_shape(network.init, random.key(0))
    assert jax.eval_shape(network.apply, params, zeros(space, 3)).shape == (3, width)


def test_the_perceptron_ends_with_its_activation():
    space = box(3, dtype="float32")
    network, size = make_torso("mlp", space, (4,), jax.nn.relu)
    params, obs = build(network), observe(space, 2) - 0.5
    expected = jnp.maximum(obs @ params[0]["w"] + params[0]["b"].reshape(1, -1), 0)
    assert size == 4
    np.testing.assert_allclose(network.apply(params, obs), expected, rtol=1e-5, atol=1e-6)


def test_a_perceptron_without_layers_passes_observations_on():
    network, size = make_torso("mlp", {"a": Discrete(2), "b": Discrete(3)}, ())
    obs = {"a": np.array([1]), "b": np.array([0])}
    assert size == 5
    assert network.apply(network.init(random.key(0)), obs).tolist() == [[0, 1, 1, 0, 0]]
