// Shared by convolutions and poolings: indices taken apart into positions, and the taps and windows that meet.
//
// Sizes, strides, dilations and the extents of windows lie below 2³¹ (core checks them); products of a position with a
// stride do not, so positions before the clip are i64.
#pragma once

#include "types.cuh"

// The windows of a convolution or a pooling: (depth, height, width) of each.
struct WindowParams {
    u32 input[3], kernel[3], output[3], stride[3], padding[3], dilation[3];
};
static_assert(sizeof(WindowParams) == 72, "core::ops::WindowParams");

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

// The taps of window `o` inside the input, in dimension `i`: a kernel may be far larger than its input.
__device__ __forceinline__ Span inside(const WindowParams &p, int i, u32 o) {
    u32 size = p.input[i], dilation = p.dilation[i];
    i64 first = (i64)o * p.stride[i] - p.padding[i];
    u32 before = first < 0 ? (u32)-first : 0;
    u32 left = first < (i64)size ? (u32)(size - first) : 0;
    return {ceil_div(before, dilation), min(ceil_div(left, dilation), p.kernel[i])};
}

// The input that tap `k` of window `o` reads, in dimension `i`, when the tap is inside.
__device__ __forceinline__ u32 source(const WindowParams &p, int i, u32 o, u32 k) {
    return (u32)((i64)o * p.stride[i] + (i64)k * p.dilation[i] - p.padding[i]);
}

// The taps with which some window can read input `at`, in dimension `i`.
__device__ __forceinline__ Span taps_reading(const WindowParams &p, int i, u32 at) {
    u32 output = p.output[i], dilation = p.dilation[i];
    u32 reach = at + p.padding[i]; // below 2³²
    u64 last = (u64)(output > 0 ? output - 1 : 0) * p.stride[i];
    u32 from = reach > last ? ceil_div((u32)(reach - last), dilation) : 0;
    return {from, output > 0 ? min(reach / dilation + 1, p.kernel[i]) : 0};
}

// The window whose tap `k` reads input `at`, in dimension `i`, or −1.
__device__ __forceinline__ i64 window_reading(const WindowParams &p, int i, u32 at, u32 k) {
    u64 back = (u64)k * p.dilation[i];
    u32 reach = at + p.padding[i];
    if (back > reach) return -1;
    u32 t = reach - (u32)back, o = t / p.stride[i];
    return o * p.stride[i] == t && o < p.output[i] ? (i64)o : -1;
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

// The taps with which windows read input `at`, in dimension `i`; `s` is that of its stride and dilation. `reader` gives the
// window of each.
__device__ __forceinline__ Readers readers(const TapStep &s, const WindowParams &p, int i, u32 at) {
    Span taps = taps_reading(p, i, at);
    u32 reach = at + p.padding[i], first;
    if (s.step == 1 && s.common == 1) return {taps.from, taps.to, 1};
    if (reach % s.common != 0) return {0, 0, 1};
    split((u64)(reach / s.common % s.step) * s.inverse, s.step, first);
    first = taps.from + (first + s.step - taps.from % s.step) % s.step;
    return {first, taps.to, s.step};
}

__device__ __forceinline__ Readers readers(const WindowParams &p, int i, u32 at) {
    return readers(tap_step(p.stride[i], p.dilation[i]), p, i, at);
}

// The window that reads input `at` by tap `k`, which is one of `readers`, in dimension `i`.
__device__ __forceinline__ u32 reader(const WindowParams &p, int i, u32 at, u32 k) {
    return (at + p.padding[i] - k * p.dilation[i]) / p.stride[i];
}

// The windows with taps next to each other (dilation 1) that contain input `at`, in dimension `i`.
__device__ __forceinline__ Span windows_over(const WindowParams &p, int i, u32 at) {
    u32 reach = at + p.padding[i], kernel = p.kernel[i], stride = p.stride[i];
    u32 from = reach >= kernel ? ceil_div(reach + 1 - kernel, stride) : 0;
    return {from, min(reach / stride + 1, p.output[i])};
}
