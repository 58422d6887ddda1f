"""Fill triangles on a screen with a depth buffer: eqs. (2) to (4) of docs/derivations/rasteriser.md.

A thread takes a band of rows and goes through all triangles: no two threads write the same pixel, on any device.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import kernel_module, made_once

BAND = 16
"""Rows of pixels that one thread fills."""


@made_once
def raster_kernels() -> SimpleNamespace:
    """Return the kernel that fills triangles."""
    module = kernel_module("raster", wp.float32)

    @wp.kernel(module=module)
    def fill(
        first: int,
        # x, y [pixels] and 1/z of three corners, and how bright each is
        corners: wp.array3d(dtype=wp.float32),
        bright: wp.array2d(dtype=wp.float32),
        # in, out: 1/z of the nearest triangle, its number, and its brightness there
        depth: wp.array2d(dtype=wp.float32),
        number: wp.array2d(dtype=wp.int32),
        shade: wp.array2d(dtype=wp.float32),
    ):
        band = first + wp.tid()
        low = band * BAND
        high = wp.min(low + BAND, depth.shape[0])
        for t in range(corners.shape[0]):
            x0 = corners[t, 0, 0]
            y0 = corners[t, 0, 1]
            x1 = corners[t, 1, 0]
            y1 = corners[t, 1, 1]
            x2 = corners[t, 2, 0]
            y2 = corners[t, 2, 1]
            # centres of pixels are at halves
            top = wp.max(wp.int32(wp.ceil(wp.min(y0, wp.min(y1, y2)) - 0.5)), low)
            bottom = wp.min(wp.int32(wp.floor(wp.max(y0, wp.max(y1, y2)) - 0.5)) + 1, high)
            if top < bottom:
                # eq. (2): twice the signed area
                area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
                if wp.abs(area) > 1.0e-9:
                    left = wp.max(wp.int32(wp.ceil(wp.min(x0, wp.min(x1, x2)) - 0.5)), 0)
                    right = wp.min(wp.int32(wp.floor(wp.max(x0, wp.max(x1, x2)) - 0.5)) + 1, depth.shape[1])
                    for row in range(top, bottom):
                        y = wp.float32(row) + 0.5
                        for column in range(left, right):
                            x = wp.float32(column) + 0.5
                            # eq. (3): shares of the corners
                            a = ((x1 - x) * (y2 - y) - (x2 - x) * (y1 - y)) / area
                            b = ((x2 - x) * (y0 - y) - (x0 - x) * (y2 - y)) / area
                            c = 1.0 - a - b
                            if a >= 0.0 and b >= 0.0 and c >= 0.0:
                                # eq. (4)
                                nearness = a * corners[t, 0, 2] + b * corners[t, 1, 2] + c * corners[t, 2, 2]
                                if nearness > depth[row, column]:
                                    depth[row, column] = nearness
                                    number[row, column] = t
                                    shade[row, column] = a * bright[t, 0] + b * bright[t, 1] + c * bright[t, 2]

    return SimpleNamespace(fill=fill)
