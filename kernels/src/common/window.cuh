// What convolutions and poolings share: indices taken apart into positions, and the taps and windows that meet.
//
// Sizes, strides, dilations and the extents of windows lie below 2³¹ (core checks them); products of a position with a
// stride do not, so positions before the clip are i64.
#pragma once

#include "types.cuh"

// Quotient and remainder, by 32-bit division where the value allows it: a 64-bit division is a hundred instructions.
__device__ __forceinline__ u64 split(u64 value, u32 by, u32 &rest) {
    if (value >> 32 == 0) {
        u32 quotient = (u32)value / by;
        rest = (u32)value - quotient * by;
        return quotient;
    }
    u64 quotient = value / by;
    rest = (u32)(value - quotient * by);
    return quotient;
}

// A position in a batch of images.
struct Position {
    u64 image;
    u32 at[3]; // d, h, w
};

// The position with number `n`, counted over all images of `size`.
__device__ __forceinline__ Position position_of(u64 n, const u32 (&size)[3]) {
    Position p;
    n = split(n, size[2], p.at[2]);
    n = split(n, size[1], p.at[1]);
    p.image = split(n, size[0], p.at[0]);
    return p;
}

// The number of a position in its image.
__device__ __forceinline__ u64 flat(const u32 (&size)[3], u32 d, u32 h, u32 w) {
    return ((u64)d * size[1] + h) * size[2] + w;
}

// A half-open range of numbers.
struct Span {
    u32 from, to;
};

__device__ __forceinline__ u32 ceil_div(u32 a, u32 b) { return a / b + (a % b != 0); }

// The taps of window `o` that lie inside an input of `size`: a kernel may be far larger than its input.
__device__ __forceinline__ Span taps_inside(u32 o, u32 stride, u32 padding, u32 dilation, u32 kernel, u32 size) {
    i64 first = (i64)o * stride - padding;
    u32 before = first < 0 ? (u32)-first : 0;
    u32 left = first < (i64)size ? (u32)(size - first) : 0;
    return {ceil_div(before, dilation), min(ceil_div(left, dilation), kernel)};
}

// The taps with which some window can read input `at`.
__device__ __forceinline__ Span taps_reading(u32 at, u32 stride, u32 padding, u32 dilation, u32 kernel, u32 output) {
    u32 reach = at + padding; // below 2³²
    u64 last = (u64)(output > 0 ? output - 1 : 0) * stride;
    u32 from = reach > last ? ceil_div((u32)(reach - last), dilation) : 0;
    return {from, output > 0 ? min(reach / dilation + 1, kernel) : 0};
}

// The window whose tap `k` reads input `at`, or −1.
__device__ __forceinline__ i64 reader(u32 at, u32 k, u32 stride, u32 padding, u32 dilation, u32 output) {
    u64 back = (u64)k * dilation;
    u32 reach = at + padding;
    if (back > reach) return -1;
    u32 t = reach - (u32)back, o = t / stride;
    return o * stride == t && o < output ? (i64)o : -1;
}

// The taps with which windows read one input are those whose distance from the window's start leaves the same remainder by
// the stride as the input's from the first window's: an even step apart.
struct TapStep {
    u32 step, common; // common: the greatest common divisor of stride and dilation
    u32 inverse;      // of dilation / common, modulo step
};

__device__ __forceinline__ TapStep tap_step(u32 stride, u32 dilation) {
    // Euclid's algorithm: in each row, `rest` is dilation·`times` modulo stride.
    i32 last = (i32)stride, rest = (i32)(dilation % stride), last_times = 0, times = 1;
    while (rest != 0) {
        i32 quotient = last / rest, next = last % rest, next_times = last_times - quotient * times;
        last = rest, last_times = times;
        rest = next, times = next_times;
    }
    u32 step = stride / (u32)last;
    return {step, (u32)last, last_times < 0 ? (u32)(last_times + (i32)step) : (u32)last_times};
}

// The taps `from`, `from` + step, … before `to`.
struct Readers {
    u32 from, to, step;
};

// The taps with which windows read input `at`. `reader` gives the window of each.
__device__ __forceinline__ Readers readers(const TapStep &s, u32 at, u32 stride, u32 padding, u32 dilation, u32 kernel,
                                           u32 output) {
    Span taps = taps_reading(at, stride, padding, dilation, kernel, output);
    u32 reach = at + padding, first;
    if (s.step == 1 && s.common == 1) return {taps.from, taps.to, 1};
    if (reach % s.common != 0) return {0, 0, 1};
    split((u64)(reach / s.common % s.step) * s.inverse, s.step, first);
    first = taps.from + (first + s.step - taps.from % s.step) % s.step;
    return {first, taps.to, s.step};
}

// The windows with taps next to each other (dilation 1) that contain input `at`.
__device__ __forceinline__ Span windows_over(u32 at, u32 stride, u32 padding, u32 kernel, u32 output) {
    u32 reach = at + padding;
    u32 from = reach >= kernel ? ceil_div(reach + 1 - kernel, stride) : 0;
    return {from, min(reach / stride + 1, output)};
}
