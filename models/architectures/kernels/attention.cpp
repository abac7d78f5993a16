// Softmax attention within each input of a batch, and layer normalisation of the sum of two rows, on x86-64 processors
// with AVX-512. A C interface over pointers, at the end of the file: it needs neither torch nor Python.
//
// Every function that uses AVX-512 says so in its target, and the compiler gets no option for a processor, so that the
// library loads anywhere; `kernels_here` tells what the processor can run. The few instructions of AVX512-BF16 and AMX
// are written in assembler: code with a wider target could not be inlined into templates with a narrower one.
//
// A result depends on the values of its own input alone. No byte outside of the tensors' rows is read or written.

// The undefined vectors in the header of GCC 11 and 12 bring this warning to their callers.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#include <immintrin.h>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

namespace {

// bfloat16: the upper half of a float.
struct Brain {
    uint16_t bits;
};

// The same where the processor has AVX512-BF16, which rounds in one instruction.
struct NativeBrain : Brain {};

constexpr int kLanes = 16;    // 32-bit values of a vector; also the rows of a tile.
constexpr int kKeys = 256;    // of a block: softmax is computed by blocks, so that scores stay in the nearest cache.
constexpr int kStride = 272;  // between rows of scores: 17 lines, so that 16 rows do not share the sets of a cache.

// --- Values in memory ------------------------------------------------------------------------------------------------

AVX512 inline __mmask16 first_lanes(int count) {
    return static_cast<__mmask16>(count >= kLanes ? 0xFFFF : (1U << count) - 1);
}

AVX512 inline __m512 load_floats(const float* from, __mmask16 lanes) { return _mm512_maskz_loadu_ps(lanes, from); }

AVX512 inline __m512 load_floats(const Brain* from, __mmask16 lanes) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

AVX512 inline void store_floats(float* to, __mmask16 lanes, __m512 values) { _mm512_mask_storeu_ps(to, lanes, values); }

// Rounds to the nearest, ties to even; what is not a number stays so.
AVX512 inline void store_floats(Brain* to, __mmask16 lanes, __m512 values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF));
    const __mmask16 no_number = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, no_number, bits, _mm512_set1_epi32(0x400000));
    _mm256_mask_storeu_epi16(to, lanes, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

AVX512 inline void store_floats(NativeBrain* to, __mmask16 lanes, __m512 values) {
    __m256i rounded;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(values));
    _mm256_mask_storeu_epi16(to, lanes, rounded);
}

// --- The instruction sets --------------------------------------------------------------------------------------------
//
// Each multiplies rows of 32-bit units: pairs of bfloat16, or floats. `Value` is what the tensors hold.

// c[16 rows, 16 * tiles] = (or +=) a[16 rows, depth] . b[tiles][depth][16 columns]; strides are of units.
struct Product {
    const int32_t* a;
    ptrdiff_t a_stride;
    const int32_t* b;
    ptrdiff_t b_stride;  // between tiles
    float* c;
    ptrdiff_t c_stride;
    int depth;
    bool add;
};

template <class Set, int Rows, int Tiles>
AVX512 void multiply_rows(const Product& product, int row, int tile) {
    __m512 sums[Rows][Tiles];
    float* c = product.c + row * product.c_stride + tile * kLanes;
#pragma GCC unroll 8
    for (int i = 0; i < Rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < Tiles; j++) {
            sums[i][j] = product.add ? _mm512_load_ps(c + i * product.c_stride + j * kLanes) : _mm512_setzero_ps();
        }
    }
    const int32_t* a = product.a + row * product.a_stride;
    const int32_t* b = product.b + tile * product.b_stride;
    for (int k = 0; k < product.depth; k++) {
        __m512i columns[Tiles];
#pragma GCC unroll 4
        for (int j = 0; j < Tiles; j++) columns[j] = _mm512_load_si512(b + j * product.b_stride + k * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < Rows; i++) {
            const __m512i unit = _mm512_set1_epi32(a[i * product.a_stride + k]);
#pragma GCC unroll 4
            for (int j = 0; j < Tiles; j++) sums[i][j] = Set::multiply_add(unit, columns[j], sums[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < Rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < Tiles; j++) _mm512_store_ps(c + i * product.c_stride + j * kLanes, sums[i][j]);
    }
}

// Registers hold 8 rows of 3 tiles.
template <class Set>
AVX512 void multiply_vectors(const Product& product, int rows, int tiles) {
    for (int tile = 0; tile < tiles; tile += 3) {
        for (int row = 0; row < rows; row += 8) {
            if (tiles - tile >= 3) {
                multiply_rows<Set, 8, 3>(product, row, tile);
            } else if (tiles - tile == 2) {
                multiply_rows<Set, 8, 2>(product, row, tile);
            } else {
                multiply_rows<Set, 8, 1>(product, row, tile);
            }
        }
    }
}

// Products of floats, of tensors in either type.
template <class Held>
struct Floats {
    using Value = Held;
    static constexpr int kGroup = 1;      // values of a unit
    static constexpr int kDepthStep = 1;  // what the units of a product are a multiple of

    AVX512 static __m512 multiply_add(__m512i unit, __m512i columns, __m512 sum) {
        return _mm512_fmadd_ps(_mm512_castsi512_ps(unit), _mm512_castsi512_ps(columns), sum);
    }

    AVX512 static void multiply(const Product& product, int rows, int tiles) {
        multiply_vectors<Floats>(product, rows, tiles);
    }

    AVX512 static __m512i load_units(const Value* from, int count) {
        return _mm512_castps_si512(load_floats(from, first_lanes(count)));
    }

    // Two tiles of a row of probabilities.
    AVX512 static void store_units(int32_t* to, __m512 low, __m512 high) {
        _mm512_store_ps(to, low);
        _mm512_store_ps(to + kLanes, high);
    }

    // 16 columns of a row of values, beside those of the next row where a unit holds two.
    AVX512 static __m512i join_rows(const Value* row, const Value*, __mmask16 lanes) {
        return _mm512_castps_si512(load_floats(row, lanes));
    }
};

// What products of bfloat16 have in common.
struct Pairs {
    using Value = NativeBrain;
    static constexpr int kGroup = 2;

    AVX512 static __m512i load_units(const Brain* from, int count) {
        const __mmask32 lanes = count >= 2 * kLanes ? 0xFFFFFFFFU : (1U << count) - 1;
        return _mm512_maskz_loadu_epi16(lanes, from);
    }

    AVX512 static void store_units(int32_t* to, __m512 low, __m512 high) {
        __m512i rounded;
        __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(rounded) : "v"(high), "v"(low));
        _mm512_store_si512(to, rounded);
    }

    AVX512 static __m512i join_rows(const Brain* row, const Brain* next, __mmask16 lanes) {
        const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, row));
        if (next == nullptr) return even;
        const __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, next));
        return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
    }
};

struct Bf16 : Pairs {
    static constexpr int kDepthStep = 1;

    AVX512 static __m512 multiply_add(__m512i unit, __m512i columns, __m512 sum) {
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(columns), "v"(unit));
        return sum;
    }

    AVX512 static void multiply(const Product& product, int rows, int tiles) {
        multiply_vectors<Bf16>(product, rows, tiles);
    }
};

struct Amx : Pairs {
    static constexpr int kDepthStep = kLanes;

    template <int Tile>
    static void zero() {
        __asm__ volatile("tilezero %%tmm%c0" ::"i"(Tile));
    }
    template <int Tile>
    static void load(const void* from, ptrdiff_t stride) {
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride * 4), "i"(Tile) : "memory");
    }
    template <int Tile>
    static void store(void* to, ptrdiff_t stride) {
        __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride * 4), "i"(Tile) : "memory");
    }

    // Registers 0 to 3 hold sums, 4 the rows, 5 to 7 columns.
    template <int Tile, int Tiles>
    static void start(const Product& product, float* c) {
        if constexpr (Tile < Tiles) {
            if (product.add) {
                load<Tile>(c + Tile * kLanes, product.c_stride);
            } else {
                zero<Tile>();
            }
            start<Tile + 1, Tiles>(product, c);
        }
    }
    template <int Tile, int Tiles>
    static void step(const Product& product, const int32_t* b) {
        if constexpr (Tile < Tiles) {
            constexpr int columns = 5 + Tile % 3;
            load<columns>(b + Tile * product.b_stride, kLanes);
            __asm__ volatile("tdpbf16ps %%tmm%c0, %%tmm4, %%tmm%c1" ::"i"(columns), "i"(Tile));
            step<Tile + 1, Tiles>(product, b);
        }
    }
    template <int Tile, int Tiles>
    static void finish(const Product& product, float* c) {
        if constexpr (Tile < Tiles) {
            store<Tile>(c + Tile * kLanes, product.c_stride);
            finish<Tile + 1, Tiles>(product, c);
        }
    }

    template <int Tiles>
    static void multiply_tiles(const Product& product, int tile) {
        float* c = product.c + tile * kLanes;
        const int32_t* b = product.b + tile * product.b_stride;
        start<0, Tiles>(product, c);
        for (int k = 0; k < product.depth; k += kLanes) {
            load<4>(product.a + k, product.a_stride);
            step<0, Tiles>(product, b + k * kLanes);
        }
        finish<0, Tiles>(product, c);
    }

    static void multiply(const Product& product, int, int tiles) {
        int tile = 0;
        for (; tiles - tile >= 4; tile += 4) multiply_tiles<4>(product, tile);
        if (tiles - tile == 3) multiply_tiles<3>(product, tile);
        if (tiles - tile == 2) multiply_tiles<2>(product, tile);
        if (tiles - tile == 1) multiply_tiles<1>(product, tile);
    }
};

// The tiles' configuration belongs to the thread, and oneDNN keeps its own there from call to call.
class TileConfiguration {
 public:
    TileConfiguration() {
        alignas(64) uint8_t wanted[64] = {1};
        for (int tile = 0; tile < 8; tile++) {
            wanted[16 + 2 * tile] = 64;  // bytes of a row
            wanted[48 + tile] = kLanes;  // rows
        }
        __asm__ volatile("sttilecfg %0" : "=m"(before_));
        __asm__ volatile("ldtilecfg %0" ::"m"(wanted));
    }
    ~TileConfiguration() { __asm__ volatile("ldtilecfg %0" ::"m"(before_)); }
    TileConfiguration(const TileConfiguration&) = delete;
    TileConfiguration& operator=(const TileConfiguration&) = delete;

 private:
    alignas(64) uint8_t before_[64] = {};
};

struct NoTiles {
    NoTiles() {}  // Not trivial: it is used for its life only.
};

template <class Set>
struct Tiles {
    using Life = NoTiles;
};
template <>
struct Tiles<Amx> {
    using Life = TileConfiguration;
};

// --- Vectors ---------------------------------------------------------------------------------------------------------

// 2^x, with a relative error of 7e-5 for bfloat16 and 7e-8 for float: minimax polynomials of the fraction of x.
AVX512 inline __m512 power_of_two(__m512 x, const Brain*) {
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 part = _mm512_sub_ps(x, whole);
    __m512 sum = _mm512_fmadd_ps(_mm512_set1_ps(5.517167008e-02F), part, _mm512_set1_ps(2.426111283e-01F));
    sum = _mm512_fmadd_ps(sum, part, _mm512_set1_ps(6.932609858e-01F));
    sum = _mm512_fmadd_ps(sum, part, _mm512_set1_ps(9.999280732e-01F));
    return _mm512_scalef_ps(sum, whole);
}

AVX512 inline __m512 power_of_two(__m512 x, const float*) {
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 part = _mm512_sub_ps(x, whole);
    __m512 sum = _mm512_fmadd_ps(_mm512_set1_ps(1.327647211e-03F), part, _mm512_set1_ps(9.675541427e-03F));
    sum = _mm512_fmadd_ps(sum, part, _mm512_set1_ps(5.550713274e-02F));
    sum = _mm512_fmadd_ps(sum, part, _mm512_set1_ps(2.402211972e-01F));
    sum = _mm512_fmadd_ps(sum, part, _mm512_set1_ps(6.931469671e-01F));
    sum = _mm512_fmadd_ps(sum, part, _mm512_set1_ps(1.000000072e+00F));
    return _mm512_scalef_ps(sum, whole);
}

// Turns 16 rows of 16 units around.
AVX512 inline void transpose(__m512i (&rows)[kLanes]) {
    __m512i pairs[kLanes];
    __m512i fours[kLanes];
    for (int i = 0; i < kLanes; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < kLanes; i += 4) {
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm512_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
            fours[i + 2 * j + 1] = _mm512_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
        }
    }
    for (int i = 0; i < 4; i++) {
        const __m512i low = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0x88);
        const __m512i high = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0xDD);
        const __m512i next_low = _mm512_shuffle_i32x4(fours[i + 8], fours[i + 12], 0x88);
        const __m512i next_high = _mm512_shuffle_i32x4(fours[i + 8], fours[i + 12], 0xDD);
        rows[i] = _mm512_shuffle_i32x4(low, next_low, 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(low, next_low, 0xDD);
        rows[i + 4] = _mm512_shuffle_i32x4(high, next_high, 0x88);
        rows[i + 12] = _mm512_shuffle_i32x4(high, next_high, 0xDD);
    }
}

struct Maximum {
    AVX512 static __m512 of(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
};
struct Sum {
    AVX512 static __m512 of(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
};

// The maximum or sum of each of 16 vectors, all in one.
template <class Reduction>
AVX512 inline __m512 reduce(__m512 (&rows)[kLanes]) {
    __m512 halves[8];
    __m512 fours[4];
    for (int i = 0; i < 8; i++) {
        const __m512 a = rows[2 * i];
        const __m512 b = rows[2 * i + 1];
        halves[i] = Reduction::of(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    }
    for (int i = 0; i < 4; i++) {
        const __m512 a = halves[2 * i];
        const __m512 b = halves[2 * i + 1];
        fours[i] = Reduction::of(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
    }
    for (int i = 0; i < 2; i++) {
        const __m512d a = _mm512_castps_pd(fours[2 * i]);
        const __m512d b = _mm512_castps_pd(fours[2 * i + 1]);
        fours[i] =
            Reduction::of(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    const __m512 found =
        Reduction::of(_mm512_shuffle_ps(fours[0], fours[1], 0x88), _mm512_shuffle_ps(fours[0], fours[1], 0xDD));
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), found);
}

// --- Attention -------------------------------------------------------------------------------------------------------

inline int multiple_of(int step, int count) { return (count + step - 1) / step * step; }

// Memory of a thread, which grows with the longest input that it meets.
class Scratch {
 public:
    ~Scratch() { std::free(memory_); }
    int32_t* take(size_t units) {
        if (units > size_) {
            std::free(memory_);
            size_ = 0;
            memory_ = static_cast<int32_t*>(std::aligned_alloc(64, (units * 4 + 63) / 64 * 64));
            if (memory_ != nullptr) size_ = units;
        }
        return memory_;
    }

 private:
    int32_t* memory_ = nullptr;
    size_t size_ = 0;
};

Scratch& scratch() {
    static thread_local Scratch of_thread;
    return of_thread;
}

// The keys that a row of scores keeps, as places in the block: from `first` to before `end`.
struct Kept {
    int first;
    int end;
};

inline uint32_t places_before(int place) {
    if (place <= 0) return 0;
    return place >= 2 * kLanes ? 0xFFFFFFFFU : (1U << place) - 1;
}

// Those of the two tiles from a place on.
inline uint32_t kept_places(Kept kept, int place) {
    return places_before(kept.end - place) & ~places_before(kept.first - place);
}

inline bool keeps_all(Kept kept, int place) { return place >= kept.first && place + 2 * kLanes <= kept.end; }

template <class Set>
class Head {
    using Value = typename Set::Value;

 public:
    Head(int size, float scale) : size_(size), scale_(scale * 1.44269504F) {
        depth_ = multiple_of(Set::kDepthStep, (size + Set::kGroup - 1) / Set::kGroup);
        tiles_ = (size + kLanes - 1) / kLanes;
    }

    size_t units(int longest) const {
        return static_cast<size_t>(multiple_of(2 * kLanes, longest)) * (depth_ + tiles_ * kLanes / Set::kGroup) +
               kLanes * (depth_ + kStride + tiles_ * kLanes);
    }

    // Puts the keys and values of an input into the order of products.
    AVX512 void take(int32_t* memory, const Value* keys, const Value* values, ptrdiff_t stride, int length) {
        length_ = length;
        query_ = memory;
        scores_ = reinterpret_cast<float*>(query_ + kLanes * depth_);
        sums_ = scores_ + kLanes * kStride;
        keys_ = reinterpret_cast<int32_t*>(sums_ + kLanes * tiles_ * kLanes);
        value_stride_ = static_cast<ptrdiff_t>(multiple_of(2 * kLanes, length)) / Set::kGroup * kLanes;
        values_ = keys_ + static_cast<ptrdiff_t>(multiple_of(kLanes, length)) * depth_;
        for (int key = 0; key < length; key += kLanes) {
            const int count = std::min(kLanes, length - key);
            take_keys(keys + key * stride, stride, count, keys_ + static_cast<ptrdiff_t>(key) * depth_);
        }
        for (int tile = 0; tile < tiles_; tile++) take_values(values + tile * kLanes, stride, tile);
    }

    // Up to 16 rows of the result; the first query is at this place of the input, and reads as far as `window`.
    AVX512 void attend(const Value* query, ptrdiff_t stride, int place, int rows, int window, Value* to,
                       ptrdiff_t to_stride) {
        take_queries(query, stride, rows);
        const int reach = window == 0 ? length_ : window;
        const int first = std::max(0, place - reach) / (2 * kLanes) * (2 * kLanes);
        const int end = std::min(length_, place + rows + reach);
        const int computed = multiple_of(8, rows);
        largest_ = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
        for (int block = first; block < end; block += kKeys) {
            const int count = std::min(kKeys, end - block);
            const int weights = multiple_of(2 * kLanes, count);
            Kept kept[kLanes];
            for (int row = 0; row < rows; row++) {
                kept[row] = {place + row - reach - block, std::min(count, place + row + reach + 1 - block)};
            }
            const int32_t* keys = keys_ + static_cast<ptrdiff_t>(block) * depth_;
            const int32_t* values = values_ + static_cast<ptrdiff_t>(block) / Set::kGroup * kLanes;
            const ptrdiff_t key_stride = static_cast<ptrdiff_t>(depth_) * kLanes;
            Set::multiply({query_, depth_, keys, key_stride, scores_, kStride, depth_, false}, computed,
                          (count + kLanes - 1) / kLanes);
            weigh(kept, rows, weights, block == first);
            Set::multiply({reinterpret_cast<int32_t*>(scores_), kStride, values, value_stride_, sums_, tiles_ * kLanes,
                           weights / Set::kGroup, block != first},
                          computed, tiles_);
        }
        alignas(64) float inverse[kLanes];
        _mm512_store_ps(inverse, _mm512_div_ps(_mm512_set1_ps(1.0F), total_));
        for (int row = 0; row < rows; row++) {
            for (int tile = 0; tile < tiles_; tile++) {
                const __m512 sum = _mm512_load_ps(sums_ + (row * tiles_ + tile) * kLanes);
                store_floats(to + row * to_stride + tile * kLanes, first_lanes(size_ - tile * kLanes),
                             _mm512_mul_ps(sum, _mm512_set1_ps(inverse[row])));
            }
        }
    }

 private:
    AVX512 void take_queries(const Value* from, ptrdiff_t stride, int rows) const {
        for (int row = 0; row < kLanes; row++) {
            for (int unit = 0; unit < depth_; unit += kLanes) {
                const __m512i units = row < rows ? load_units(from + row * stride, unit) : _mm512_setzero_si512();
                _mm512_mask_storeu_epi32(query_ + row * depth_ + unit, first_lanes(depth_ - unit), units);
            }
        }
    }

    // 16 units of a head; zeros beyond its end.
    AVX512 __m512i load_units(const Value* from, int unit) const {
        const int place = unit * Set::kGroup;
        return place < size_ ? Set::load_units(from + place, size_ - place) : _mm512_setzero_si512();
    }

    AVX512 void take_keys(const Value* from, ptrdiff_t stride, int count, int32_t* to) const {
        for (int unit = 0; unit < depth_; unit += kLanes) {
            __m512i rows[kLanes];
            for (int row = 0; row < kLanes; row++) {
                rows[row] = row < count ? load_units(from + row * stride, unit) : _mm512_setzero_si512();
            }
            transpose(rows);
            for (int row = 0; row < std::min(kLanes, depth_ - unit); row++) {
                _mm512_store_si512(to + (unit + row) * kLanes, rows[row]);
            }
        }
    }

    AVX512 void take_values(const Value* from, ptrdiff_t stride, int tile) const {
        const __mmask16 lanes = first_lanes(size_ - tile * kLanes);
        int32_t* to = values_ + tile * value_stride_;
        int32_t* end = to + value_stride_;
        for (int key = 0; key < length_; key += Set::kGroup, to += kLanes, from += Set::kGroup * stride) {
            const Value* next = key + 1 < length_ ? from + stride : nullptr;
            _mm512_store_si512(to, Set::join_rows(from, next, lanes));
        }
        for (; to < end; to += kLanes) _mm512_store_si512(to, _mm512_setzero_si512());
    }

    // Makes scores to weights, in place: e^(scale * (score - largest)), and 0 for a key that is not kept. What was
    // summed so far is brought to the new largest score.
    AVX512 void weigh(const Kept (&kept)[kLanes], int rows, int count, bool is_first) {
        __m512 found[kLanes];
        for (int row = rows; row < kLanes; row++) found[row] = _mm512_setzero_ps();
        for (int row = 0; row < rows; row++) found[row] = largest_score(scores_ + row * kStride, kept[row], count);
        const __m512 largest = _mm512_max_ps(largest_, reduce<Maximum>(found));
        alignas(64) float tops[kLanes];
        _mm512_store_ps(tops, _mm512_mul_ps(largest, _mm512_set1_ps(scale_)));
        for (int row = 0; row < rows; row++) {
            found[row] = exponentials(scores_ + row * kStride, kept[row], count, tops[row]);
        }
        const __m512 total = reduce<Sum>(found);
        total_ = is_first ? total : _mm512_fmadd_ps(total_, rescale(largest, rows), total);
        largest_ = largest;
    }

    // Returns what the sums of each row were multiplied with.
    AVX512 __m512 rescale(__m512 largest, int rows) const {
        const __m512 fallen = _mm512_mul_ps(_mm512_sub_ps(largest_, largest), _mm512_set1_ps(scale_));
        const __m512 change = power_of_two(fallen, static_cast<const float*>(nullptr));
        alignas(64) float changes[kLanes];
        _mm512_store_ps(changes, change);
        for (int row = 0; row < rows; row++) {
            for (int tile = 0; tile < tiles_; tile++) {
                float* sum = sums_ + (row * tiles_ + tile) * kLanes;
                _mm512_store_ps(sum, _mm512_mul_ps(_mm512_load_ps(sum), _mm512_set1_ps(changes[row])));
            }
        }
        return change;
    }

    AVX512 static __m512 largest_score(const float* row, Kept kept, int count) {
        __m512 low = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
        __m512 high = low;
        for (int place = 0; place < count; place += 2 * kLanes) {
            const __m512 next_low = _mm512_load_ps(row + place);
            const __m512 next_high = _mm512_load_ps(row + place + kLanes);
            if (keeps_all(kept, place)) {
                low = _mm512_max_ps(low, next_low);
                high = _mm512_max_ps(high, next_high);
            } else {
                const uint32_t places = kept_places(kept, place);
                low = _mm512_mask_max_ps(low, static_cast<__mmask16>(places), low, next_low);
                high = _mm512_mask_max_ps(high, static_cast<__mmask16>(places >> 16), high, next_high);
            }
        }
        return _mm512_max_ps(low, high);
    }

    // Writes the weights of a row over its scores, and returns their sum over every 16th key.
    AVX512 __m512 exponentials(float* row, Kept kept, int count, float top) const {
        const __m512 scale = _mm512_set1_ps(scale_);
        const __m512 tops = _mm512_set1_ps(top);
        const Value* kind = nullptr;
        __m512 sum = _mm512_setzero_ps();
        for (int place = 0; place < count; place += 2 * kLanes) {
            __m512 low = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(row + place), scale, tops), kind);
            __m512 high = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(row + place + kLanes), scale, tops), kind);
            if (!keeps_all(kept, place)) {
                const uint32_t places = kept_places(kept, place);
                low = _mm512_maskz_mov_ps(static_cast<__mmask16>(places), low);
                high = _mm512_maskz_mov_ps(static_cast<__mmask16>(places >> 16), high);
            }
            sum = _mm512_add_ps(sum, _mm512_add_ps(low, high));
            Set::store_units(reinterpret_cast<int32_t*>(row) + place / Set::kGroup, low, high);
        }
        return sum;
    }

    int size_;
    float scale_;  // times log2(e)
    int depth_;    // units of a query
    int tiles_;    // of 16 values
    int length_ = 0;
    int32_t* query_ = nullptr;
    float* scores_ = nullptr;
    float* sums_ = nullptr;
    int32_t* keys_ = nullptr;
    int32_t* values_ = nullptr;
    ptrdiff_t value_stride_ = 0;
    __m512 largest_;
    __m512 total_;
};

// What a call computes; strides are of values.
struct Call {
    const void* query;
    const void* key;
    const void* value;
    void* to;
    ptrdiff_t query_stride;
    ptrdiff_t stride;  // of keys and values
    ptrdiff_t rows;    // of keys and values, and of queries and results unless only first tokens ask
    const int32_t* starts;
    const int32_t* lengths;
    int inputs;
    int heads;
    int size;
    float scale;
    int window;  // 0 for all
    bool first;  // whether only the first token of each input asks; its query is in the row of the input's number
};

enum Result { kDone = 0, kNoMemory = 1, kOutside = 2 };

// The tokens of the longest input; 0 where inputs overlap or leave the rows.
int longest_input(const Call& call) {
    int longest = 1;
    ptrdiff_t end = 0;
    for (int input = 0; input < call.inputs; input++) {
        if (call.starts[input] < end || call.lengths[input] < 1) return 0;
        end = static_cast<ptrdiff_t>(call.starts[input]) + call.lengths[input];
        longest = std::max(longest, call.lengths[input]);
    }
    return end <= call.rows ? longest : 0;
}

template <class Set>
AVX512 Result attend(const Call& call) {
    using Value = typename Set::Value;
    const ptrdiff_t width = static_cast<ptrdiff_t>(call.heads) * call.size;
    const int longest = longest_input(call);
    if (longest == 0) return kOutside;
    Head<Set> head(call.size, call.scale);
    int32_t* memory = scratch().take(head.units(longest));
    if (memory == nullptr) return kNoMemory;
    const typename Tiles<Set>::Life tiles;
    auto* to = static_cast<Value*>(call.to);
    ptrdiff_t done = 0;
    for (int input = 0; input < call.inputs; input++) {
        const int length = call.lengths[input];
        const int queries = call.first ? 1 : length;
        const ptrdiff_t row = call.first ? input : call.starts[input];
        std::memset(to + done * width, 0, static_cast<size_t>((row - done) * width) * sizeof(Value));
        done = row + queries;
        for (int number = 0; number < call.heads; number++) {
            const ptrdiff_t column = static_cast<ptrdiff_t>(number) * call.size;
            const ptrdiff_t start = call.starts[input] * call.stride + column;
            head.take(memory, static_cast<const Value*>(call.key) + start,
                      static_cast<const Value*>(call.value) + start, call.stride, length);
            for (int place = 0; place < queries; place += kLanes) {
                const auto* query = static_cast<const Value*>(call.query) + (row + place) * call.query_stride + column;
                head.attend(query, call.query_stride, place, std::min(kLanes, queries - place), call.window,
                            to + (row + place) * width + column, width);
            }
        }
    }
    const ptrdiff_t end = call.first ? done : call.rows;
    std::memset(to + done * width, 0, static_cast<size_t>((end - done) * width) * sizeof(Value));
    return kDone;
}

// --- Normalisation ---------------------------------------------------------------------------------------------------

// Vectors that are summed side by side, since an addition waits for the one before it.
constexpr int kSums = 4;

inline __m512 AVX512 sum_of(const __m512 (&sums)[kSums]) {
    return _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
}

// `bias` and `summed` can be null; `summed` can be `rows` or `residual`.
template <class Value>
AVX512 Result normalise(const Value* rows, const Value* residual, const float* weight, const float* bias, Value* to,
                        Value* summed, ptrdiff_t count, int width, float eps) {
    const int padded = multiple_of(kSums * kLanes, width);
    auto* sums = reinterpret_cast<float*>(scratch().take(static_cast<size_t>(padded)));
    if (sums == nullptr) return kNoMemory;
    for (int i = 0; i < padded; i++) sums[i] = 0;
    for (ptrdiff_t offset = 0; offset < count * width; offset += width) {
        __m512 totals[kSums] = {};
        for (int i = 0; i < width; i += kLanes) {
            const __mmask16 lanes = first_lanes(width - i);
            const __m512 values =
                _mm512_add_ps(load_floats(rows + offset + i, lanes), load_floats(residual + offset + i, lanes));
            if (summed != nullptr) store_floats(summed + offset + i, lanes, values);
            _mm512_store_ps(sums + i, values);
        }
        for (int i = 0; i < padded; i += kSums * kLanes) {
            for (int j = 0; j < kSums; j++) totals[j] = _mm512_add_ps(totals[j], _mm512_load_ps(sums + i + j * kLanes));
        }
        const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum_of(totals)) / static_cast<float>(width));
        __m512 squares[kSums] = {};
        for (int i = 0; i < padded; i += kSums * kLanes) {
            for (int j = 0; j < kSums; j++) {
                const int place = i + j * kLanes;
                const __mmask16 lanes = first_lanes(std::max(0, width - place));
                const __m512 values = _mm512_maskz_sub_ps(lanes, _mm512_load_ps(sums + place), mean);
                squares[j] = _mm512_fmadd_ps(values, values, squares[j]);
            }
        }
        const float variance = _mm512_reduce_add_ps(sum_of(squares)) / static_cast<float>(width);
        const __m512 inverse = _mm512_set1_ps(1.0F / std::sqrt(variance + eps));
        for (int i = 0; i < width; i += kLanes) {
            const __mmask16 lanes = first_lanes(width - i);
            const __m512 values = _mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(sums + i), mean), inverse);
            const __m512 shift = bias == nullptr ? _mm512_setzero_ps() : load_floats(bias + i, lanes);
            store_floats(to + offset + i, lanes, _mm512_fmadd_ps(values, load_floats(weight + i, lanes), shift));
        }
    }
    return kDone;
}

// --- What the processor has ------------------------------------------------------------------------------------------

enum Kind { kAmx = 1, kAvx512Bf16 = 2, kAvx512 = 4 };

struct Registers {
    unsigned a, b, c, d;
};

Registers identify(unsigned leaf, unsigned subleaf) {
    Registers found{};
    __get_cpuid_count(leaf, subleaf, &found.a, &found.b, &found.c, &found.d);
    return found;
}

bool has(unsigned bits, unsigned bit) { return (bits >> bit & 1) != 0; }

// The states that the system saves for a thread.
unsigned saved_states() {
    if (!has(identify(1, 0).c, 27)) return 0;
    unsigned low = 0;
    unsigned high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

// Linux gives a process the tiles if it asks for them.
bool ask_for_tiles() {
    constexpr long kAsk = 0x1023;
    constexpr long kTileData = 18;
    return syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
}

}  // namespace

extern "C" {

// The kinds of kernels that this processor and its system run, as a sum.
int kernels_here() {
    constexpr unsigned kVectors = 0xE6;
    constexpr unsigned kTiles = 0x60000;
    const unsigned states = saved_states();
    const Registers features = identify(7, 0);
    const bool vectors = has(features.b, 16) && has(features.b, 17) && has(features.b, 30) && has(features.b, 31);
    if ((states & kVectors) != kVectors || !vectors || !has(identify(1, 0).c, 12)) return 0;
    if (!has(identify(7, 1).a, 5)) return kAvx512;
    const bool tiles = has(features.d, 22) && has(features.d, 24) && (states & kTiles) == kTiles && ask_for_tiles();
    return kAvx512 | kAvx512Bf16 | (tiles ? kAmx : 0);
}

// Floats are multiplied as such by every kind. Returns 0, 1 where there is no memory, or 2 where inputs overlap or
// leave the rows.
int attend(int kind, int is_float, const void* query, const void* key, const void* value, void* to,
           ptrdiff_t query_stride, ptrdiff_t stride, ptrdiff_t rows, const int32_t* starts, const int32_t* lengths,
           int inputs, int heads, int size, float scale, int window, int first) {
    const Call call{query,   key,    value, to,   query_stride, stride, rows,      starts,
                    lengths, inputs, heads, size, scale,        window, first != 0};
    if (is_float != 0) return attend<Floats<float>>(call);
    if (kind == kAmx) return attend<Amx>(call);
    return kind == kAvx512Bf16 ? attend<Bf16>(call) : attend<Floats<Brain>>(call);
}

// Returns 0, or 1 where there is no memory.
int normalise(int kind, int is_float, const void* rows, const void* residual, const float* weight, const float* bias,
              void* to, void* summed, ptrdiff_t count, int width, float eps) {
    const auto as = [&](auto value) {
        using Value = decltype(value);
        return normalise(static_cast<const Value*>(rows), static_cast<const Value*>(residual), weight, bias,
                         static_cast<Value*>(to), static_cast<Value*>(summed), count, width, eps);
    };
    if (is_float != 0) return as(0.0F);
    return kind == kAvx512 ? as(Brain{}) : as(NativeBrain{});
}
}
