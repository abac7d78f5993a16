// Calls the kernels on memory with forbidden pages on both sides, and compares the results with plain loops.
// Exits with 1 after a wrong result; a read or write beyond the rows ends it with a signal.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

extern "C" {
int kernels_here();
int attend(int kind, int is_float, const void* query, const void* key, const void* value, void* to,
           std::ptrdiff_t query_stride, std::ptrdiff_t stride, std::ptrdiff_t rows, const int32_t* starts,
           const int32_t* lengths, int inputs, int heads, int size, float scale, int window, int first);
int normalise(int kind, int is_float, const void* rows, const void* residual, const float* weight, const float* bias,
              void* to, void* summed, std::ptrdiff_t count, int width, float eps);
}

namespace {

std::mt19937 random_bits(1);

// Values in float32 or bfloat16 that end before a forbidden page, or begin after one.
class Guarded {
 public:
    Guarded(size_t count, bool is_float, bool at_end) : is_float_(is_float) {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const size_t bytes = count * (is_float ? 4 : 2);
        size_ = (bytes + page - 1) / page * page + 2 * page;
        void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) std::abort();
        pages_ = static_cast<char*>(memory);
        if (mprotect(pages_, page, PROT_NONE) != 0 || mprotect(pages_ + size_ - page, page, PROT_NONE) != 0)
            std::abort();
        data_ = at_end ? pages_ + size_ - page - bytes : pages_ + page;
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < count; i++) set(i, normal(random_bits));
    }
    ~Guarded() { munmap(pages_, size_); }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;

    void* data() const { return data_; }
    const float* floats() const { return reinterpret_cast<const float*>(data_); }
    double operator[](size_t place) const {
        uint32_t bits = 0;
        if (is_float_) {
            std::memcpy(&bits, data_ + 4 * place, 4);
        } else {
            std::memcpy(reinterpret_cast<char*>(&bits) + 2, data_ + 2 * place, 2);
        }
        float value = 0;
        std::memcpy(&value, &bits, 4);
        return value;
    }

 private:
    void set(size_t place, float value) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        std::memcpy(data_ + (is_float_ ? 4 : 2) * place, reinterpret_cast<char*>(&bits) + (is_float_ ? 0 : 2),
                    is_float_ ? 4 : 2);
    }

    bool is_float_;
    size_t size_ = 0;
    char* pages_ = nullptr;
    char* data_ = nullptr;
};

void expect(double found, double wanted, bool is_float, const char* where) {
    if (std::abs(found - wanted) <= (is_float ? 1e-5 : 3e-2)) return;
    std::fprintf(stderr, "%s: %g, not %g\n", where, found, wanted);
    std::exit(1);
}

void check_attention(int kind, bool is_float, int size, const std::vector<int32_t>& lengths, int window, bool first,
                     bool at_end) {
    const int heads = 2;
    const int width = heads * size;
    std::vector<int32_t> starts;
    int rows = 0;
    for (const int32_t length : lengths) {
        starts.push_back(rows);
        rows += length;
    }
    const int queries = first ? static_cast<int>(lengths.size()) : rows;
    const Guarded query(queries * width, is_float, at_end);
    const Guarded key(rows * width, is_float, at_end);
    const Guarded value(rows * width, is_float, at_end);
    const Guarded to(queries * width, is_float, at_end);
    const float scale = 1 / std::sqrt(static_cast<float>(size));
    if (attend(kind, is_float, query.data(), key.data(), value.data(), to.data(), width, width, rows, starts.data(),
               lengths.data(), static_cast<int>(lengths.size()), heads, size, scale, window, first) != 0) {
        std::abort();
    }
    for (size_t input = 0; input < lengths.size(); input++) {
        for (int place = 0; place < (first ? 1 : lengths[input]); place++) {
            const int row = first ? static_cast<int>(input) : starts[input] + place;
            for (int column = 0; column < width; column += size) {
                std::vector<double> sums(size);
                double total = 0;
                for (int other = 0; other < lengths[input]; other++) {
                    if (window != 0 && std::abs(other - place) > window) continue;
                    const int from = (starts[input] + other) * width + column;
                    double product = 0;
                    for (int i = 0; i < size; i++) product += query[row * width + column + i] * key[from + i];
                    const double weight = std::exp(product * scale);
                    total += weight;
                    for (int i = 0; i < size; i++) sums[i] += weight * value[from + i];
                }
                for (int i = 0; i < size; i++)
                    expect(to[row * width + column + i], sums[i] / total, is_float, "attention");
            }
        }
    }
}

void check_norm(int kind, bool is_float, int width, bool at_end) {
    const int count = 3;
    const Guarded rows(count * width, is_float, at_end);
    const Guarded residual(count * width, is_float, at_end);
    const Guarded weight(width, true, at_end);
    const Guarded bias(width, true, at_end);
    const Guarded to(count * width, is_float, at_end);
    const Guarded summed(count * width, is_float, at_end);
    if (normalise(kind, is_float, rows.data(), residual.data(), weight.floats(), bias.floats(), to.data(),
                  summed.data(), count, width, 1e-5F) != 0) {
        std::abort();
    }
    for (int row = 0; row < count; row++) {
        double mean = 0;
        double square = 0;
        for (int i = row * width; i < (row + 1) * width; i++) mean += (rows[i] + residual[i]) / width;
        for (int i = row * width; i < (row + 1) * width; i++)
            square += std::pow(rows[i] + residual[i] - mean, 2) / width;
        for (int i = row * width; i < (row + 1) * width; i++) {
            const double normed = (rows[i] + residual[i] - mean) / std::sqrt(square + 1e-5);
            const int column = i - row * width;
            expect(to[i], normed * weight[column] + bias[column], is_float, "norm");
            expect(summed[i], rows[i] + residual[i], is_float, "sum");
        }
    }
}

}  // namespace

int main() {
    const std::vector<std::vector<int32_t>> batches = {{1}, {2, 16, 1, 15}, {17, 33}, {70}};
    for (const bool at_end : {false, true}) {
        for (const int kind : {1, 2, 4}) {
            if ((kernels_here() & kind) == 0) continue;
            // More than one block of keys.
            for (const int window : {0, 300}) check_attention(kind, kind == 4, 34, {530, 3}, window, false, at_end);
            for (const int width : {1, 15, 16, 34, 64, 384, 442}) {
                check_norm(kind, false, width, at_end);
                check_norm(kind, true, width, at_end);
            }
            for (const int size : {1, 7, 16, 32, 34, 35, 64, 128}) {
                for (const auto& lengths : batches) {
                    for (const int window : {0, 5}) {
                        for (const bool first : {false, true}) {
                            check_attention(kind, false, size, lengths, window, first, at_end);
                            if (kind == 4) check_attention(kind, true, size, lengths, window, first, at_end);
                        }
                    }
                }
            }
        }
    }
    std::printf("%d\n", kernels_here());
    return 0;
}
