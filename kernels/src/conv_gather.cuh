// A convolution seen as a product: rows are positions of the result, the inner dimension runs over (tap, channel), and
// an element of the left operand is fetched from an image when it is needed. The matrix itself is never stored.
//
// Forward and data gradient are the same gather. In one dimension, tap t of row position j reads
//
//   forward:        source = −padding + j·stride + t·dilation                       of x
//   data gradient:  source = (q + padding − k·dilation) / stride, where that is whole, of g
//
// The division is whole only where q + padding and k·dilation leave the same remainder by the stride. So the data
// gradient is taken class by class: the positions q = first + j·stride of one remainder meet the taps k = k0 + t·step
// alone (step = stride / gcd(stride, dilation)), and among those the source moves by 1 with j and by
// −dilation / gcd with t. No tap is visited whose division is not whole.
//
// Bounds, which the launching table keeps: every coordinate and every image's number of positions is below 2³⁰, the
// inner dimension below 2³¹. Rows are counted in 64 bits.
#pragma once

#include "conv.cuh"

struct Axis {
    int rows;                // positions j
    int base, step;          // source of (j, t) = base + j·step + t·tap_step
    int tap_step, size;      // size of the source
    int taps;                // t
    int first_tap, next_tap; // tap of the weight = first_tap + t·next_tap
    int first_to, next_to;   // position in the result = first_to + j·next_to
};

__device__ __forceinline__ Axis forward_axis(const ConvParams &p, int i) {
    Axis a;
    a.rows = p.output[i];
    a.base = -(int)p.padding[i];
    a.step = p.stride[i];
    a.tap_step = p.dilation[i];
    a.size = p.input[i];
    a.taps = p.kernel[i];
    a.first_tap = 0;
    a.next_tap = 1;
    a.first_to = 0;
    a.next_to = 1;
    return a;
}

// The positions whose distance from the first window leaves `remainder` by the stride.
__device__ __forceinline__ Axis data_axis(const ConvParams &p, int i, int remainder) {
    int stride = p.stride[i], dilation = p.dilation[i], kernel = p.kernel[i];
    int input = p.input[i], padding = p.padding[i];
    TapStep step = tap_step(p.stride[i], p.dilation[i]);
    int common = (int)step.common;
    Axis a;
    a.next_tap = (int)step.step;
    u32 first_tap;
    split((u64)((u32)remainder / step.common) * step.inverse, step.step, first_tap);
    a.first_tap = (int)first_tap;
    bool met = remainder % common == 0 && a.first_tap < kernel;
    a.taps = met ? (kernel - a.first_tap + a.next_tap - 1) / a.next_tap : 0;
    int first = remainder - padding % stride;
    a.first_to = first < 0 ? first + stride : first;
    a.next_to = stride;
    a.rows = a.first_to < input ? (input - a.first_to + stride - 1) / stride : 0;
    a.base = met ? (a.first_to + padding - a.first_tap * dilation) / stride : 0;
    a.step = 1;
    a.tap_step = -(dilation / common);
    a.size = p.output[i];
    return a;
}

// The gather of one group (and, for the data gradient, one class of remainders).
template <bool DATA> struct Gather {
    Axis d, h, w;
    u32 group;
    u32 per, channels; // of the source: in the group, and in all
    u64 rows;          // positions of all images
    int depth;         // taps · per
    bool half;         // the last tap of a row has 8 bytes of 16, and a tap no more channels than those

    // `part` is the number of the group, or class · groups + group.
    __device__ __forceinline__ Gather(const ConvParams &p, u32 part) {
        group = part % p.groups;
        if constexpr (DATA) {
            u32 remainders = part / p.groups, r[3];
            remainders = (u32)split(remainders, p.stride[2], r[2]);
            remainders = (u32)split(remainders, p.stride[1], r[1]);
            d = data_axis(p, 0, remainders);
            h = data_axis(p, 1, r[1]);
            w = data_axis(p, 2, r[2]);
            per = group_out(p);
            channels = p.out_channels;
        } else {
            d = forward_axis(p, 0);
            h = forward_axis(p, 1);
            w = forward_axis(p, 2);
            per = group_in(p);
            channels = p.in_channels;
        }
        rows = (u64)p.batch * (u32)d.rows * (u32)h.rows * (u32)w.rows;
        depth = d.taps * h.taps * w.taps * (int)per;
        half = !DATA && p.half;
    }

    __device__ __forceinline__ Position position(u64 row) const {
        u32 size[3] = {(u32)d.rows, (u32)h.rows, (u32)w.rows};
        return position_of(row, size);
    }

    // Where the result of `row` lies: the number of its position, counted over all images.
    __device__ __forceinline__ u64 target(const ConvParams &p, u64 row) const {
        if constexpr (!DATA) return row;
        Position j = position(row);
        return j.image * volume(p.input) + flat(p.input, d.first_to + j.at[0] * d.next_to,
                                                h.first_to + j.at[1] * h.next_to, w.first_to + j.at[2] * w.next_to);
    }
};

// A place along the inner dimension: a tap in each dimension and a channel.
struct Inner {
    int d, h, w, c;

    template <bool DATA> __device__ __forceinline__ Inner(const Gather<DATA> &g, u32 k) {
        u32 rest;
        // Without taps there are no steps; the divisors only must not be zero.
        k = (u32)split(k, max(g.per, 1u), rest);
        c = (int)rest;
        k = (u32)split(k, (u32)max(g.w.taps, 1), rest);
        w = (int)rest;
        d = (int)split(k, (u32)max(g.h.taps, 1), rest);
        h = (int)rest;
    }
    template <bool DATA> __device__ __forceinline__ void advance(const Gather<DATA> &g, int by) {
        c += by;
        while (c >= (int)g.per) {
            c -= (int)g.per;
            if (++w == g.w.taps) {
                w = 0;
                if (++h == g.h.taps) {
                    h = 0;
                    ++d;
                }
            }
        }
    }
    // The tap of the weight.
    template <bool DATA> __device__ __forceinline__ int tap(const ConvParams &p, const Gather<DATA> &g) const {
        int i = g.d.first_tap + d * g.d.next_tap, j = g.h.first_tap + h * g.h.next_tap;
        return (i * (int)p.kernel[1] + j) * (int)p.kernel[2] + g.w.first_tap + w * g.w.next_tap;
    }
};

// A row of the product: its image, and the source of tap 0.
template <typename T> struct Row {
    const T *image; // the group's first channel of the image's first position
    int d, h, w;
    bool valid;

    template <bool DATA>
    __device__ __forceinline__ Row(const Gather<DATA> &g, const T *__restrict__ source, u64 row) {
        valid = row < g.rows;
        Position j = g.position(valid ? row : 0);
        u64 positions = (u64)(u32)g.d.size * (u32)g.h.size * (u32)g.w.size;
        image = source + j.image * positions * g.channels + (u64)g.group * g.per;
        d = g.d.base + (int)j.at[0] * g.d.step;
        h = g.h.base + (int)j.at[1] * g.h.step;
        w = g.w.base + (int)j.at[2] * g.w.step;
    }
    // The element at `k`, or null where the tap lies outside (the padding is zero).
    template <bool DATA> __device__ __forceinline__ const T *at(const Gather<DATA> &g, const Inner &k) const {
        int sd = d + k.d * g.d.tap_step, sh = h + k.h * g.h.tap_step, sw = w + k.w * g.w.tap_step;
        bool inside = valid && k.d < g.d.taps && (u32)sd < (u32)g.d.size && (u32)sh < (u32)g.h.size &&
                      (u32)sw < (u32)g.w.size;
        u32 position = ((u32)sd * (u32)g.h.size + (u32)sh) * (u32)g.w.size + (u32)sw;
        return inside ? image + (u64)position * g.channels + k.c : nullptr;
    }
};
