// Memory of a tensor that a kernel is given: its elements, with a check of every index.
#pragma once

namespace kiln {

// The parameter for a tensor of type T: `Slice<const float>` to read, `Slice<float>` to write.
template <typename T>
struct Slice {
    T* data;
    // Bytes, not elements: a tensor of another dtype than T is still not left.
    unsigned long long bytes;

    // The number of elements.
    __device__ unsigned long long size() const { return bytes / sizeof(T); }

    // Element i. One outside stops the kernel: the next wait for the device returns the error.
    __device__ T& operator[](unsigned long long i) const {
        if (i >= size()) __trap();
        return data[i];
    }
};

}  // namespace kiln
