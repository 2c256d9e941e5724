"""Image processing: blur, edges, resizing, rotation, median and morphology, and blind deblurring by gradients."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.ndimage import map_coordinates
from jax.scipy.signal import convolve2d
from sklearn.datasets import load_sample_image


def gaussian(size, sigma):
    x = jnp.arange(size) - size // 2
    g = jnp.exp(-(x**2) / (2 * sigma**2))
    return jnp.outer(g, g) / g.sum() ** 2


def filter_channels(image, kernel):
    """Filters each channel by itself, with a depthwise convolution."""
    kernels = jnp.tile(kernel[..., None, None], (1, 1, 1, image.shape[-1]))
    return jax.lax.conv_general_dilated(
        image[None], kernels, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=image.shape[-1])[0]


def sobel(grey):
    across = jnp.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    return jnp.hypot(convolve2d(grey, across, mode="same"), convolve2d(grey, across.T, mode="same"))


def rotate(grey, angle):
    n, m = grey.shape
    y, x = jnp.meshgrid(jnp.arange(n) - n / 2, jnp.arange(m) - m / 2, indexing="ij")
    c, s = jnp.cos(angle), jnp.sin(angle)
    return map_coordinates(grey, [c * y - s * x + n / 2, s * y + c * x + m / 2], order=1, mode="nearest")


def median(grey):
    patches = jax.lax.conv_general_dilated_patches(grey[None, None], (3, 3), (1, 1), "SAME")[0]
    return jnp.median(patches, axis=0)


def dilate(grey):
    return jax.lax.reduce_window(grey, -jnp.inf, jax.lax.max, (3, 3), (1, 1), "SAME")


def equalise(grey):
    counts, edges = jnp.histogram(grey, bins=32, range=(0.0, 1.0))
    return jnp.interp(grey, edges[1:], jnp.cumsum(counts) / grey.size)


def main():
    image = jnp.asarray(load_sample_image("china.jpg")[100:228, 200:328], jnp.float32) / 255
    grey = image @ jnp.array([0.299, 0.587, 0.114])
    saved = {
        "blurred": filter_channels(image, gaussian(7, 1.5)), "edges": jax.jit(sobel)(grey),
        "cubic": jax.image.resize(image, (48, 80, 3), "bicubic"),
        "lanczos": jax.image.resize(grey, (96, 96), "lanczos3"),
        "rotated": jax.jit(rotate)(grey, 0.4), "median": jax.jit(median)(grey), "dilated": dilate(grey),
        "equalised": jax.jit(equalise)(grey),
        "scaled": jax.image.scale_and_translate(grey, (64, 64), (0, 1), jnp.array([0.4, 0.6]), jnp.array([3.0, -5.0]),
                                                "linear")}
    for name, result in saved.items():
        print(f"{name:10} {result.shape}, mean {result.mean():.4f}")

    target = filter_channels(image, gaussian(5, 1.0))
    optimizer = optax.adam(0.1)

    @jax.jit
    def step(sigma, state):
        loss, grad = jax.value_and_grad(
            lambda s: jnp.mean((filter_channels(image, gaussian(5, s)) - target) ** 2))(sigma)
        updates, state = optimizer.update(grad, state)
        return sigma + updates, state, loss

    sigma = jnp.array(2.0)
    state = optimizer.init(sigma)
    for _ in range(20):
        sigma, state, loss = step(sigma, state)
    print(f"the blur that was made with 1.0 is estimated as {sigma:.3f}")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], sigma=sigma, **saved)


if __name__ == "__main__":
    main()
