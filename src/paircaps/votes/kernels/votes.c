/* Sums over all votes for FM agreement and for dynamic routing, and their gradients: one pass over the children each, on
 * processors.
 *
 * What is computed is said in tiled_sums.py, which this file follows step by step: votes v = g * (u W) + h of every child
 * i for every parent j, made unit vectors r v, then S = sum x r v and Z = sum (x r v)^2 over the children. A vote lives in
 * registers and the nearest cache from its birth to its sums; nothing of the size of the votes is ever stored.
 *
 * A vector of LANES floats holds the same number of LANES images, so no step needs to know how long a pose is. One file
 * serves all processors: LANES is 16 with AVX-512, 8 with AVX2, 4 elsewhere, chosen when the file is compiled. Products are
 * fused with sums only where FMA() says so: where votes cancel, rounding must be that of the plain computation.
 *
 * Dynamic routing gets its best form too. Its logits are products of a vote with the sum of all outputs so far, V, so an
 * iteration is one pass: cast the votes of a child, couple it to its parents by a softmax of <v, V>, add c v to the sums.
 *
 * Work is cut into tasks by sizes alone, each output belongs to one task, and a task adds in a fixed order. So results
 * are the same bits on any number of threads. Threads live for one call: there is nothing to fork, to spin or to shut down.
 *
 * Names: B images, I children, J parents; a child is P rows of Q values, a vote P rows of R; K = P R and D = P Q.
 */

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef LANES
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

#if LANES == 16
#include <immintrin.h>
#define FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define SPLAT(x) ((vec)_mm512_set1_ps(x))
#define ROUGH_RSQRT(x) ((vec)_mm512_rsqrt14_ps((__m512)(x)))
#elif LANES == 8
#include <immintrin.h>
#define FMA(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define SPLAT(x) ((vec)_mm256_set1_ps(x))
#define ROUGH_RSQRT(x) ((vec)_mm256_rsqrt_ps((__m256)(x)))
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#define SPLAT(x) ((vec){0} + (x))
#endif

/* Length below which a vote counts as absent, squared; and inverse lengths of votes that are longer than that. */
#define ABSENT_SQUARED 1e-24f
#define PRESENT 0.999e12f

/* Children whose sums stay in float32 before they are added in double precision, and children cast together. */
enum { CHILDREN = 32, TOGETHER = 8 };
/* Vectors of images in a task of the forward pass, and most parents in it. */
enum { FORWARD_VECTORS = 4, FORWARD_PARENTS = 16 };
/* Vectors of images whose gradients are kept at a time in the backward pass; children side by side; most tasks. */
enum { BACKWARD_VECTORS = 8, BACKWARD_CHILDREN = 4, BACKWARD_TASKS = 256 };
/* Coupled sums: vectors of images in a task of the forward pass; backward most tasks, bytes of what they keep, and of the
   votes of a child. */
enum { COUPLED_VECTORS = 2, COUPLED_TASKS = 16, COUPLED_MEMORY = 1 << 25, COUPLED_BYTES = 1 << 17 };

/* How batch norm's scale and shift are given. */
enum { PLAIN = 0, PER_DIMENSION = 1, PER_VOTE = 2 };

typedef struct {
    int64_t batch, children, parents, rows, inner, columns, unscaled, threads;
    int32_t normalize, affine;
    const float *u;            /* (B, I, D) */
    const float *weight;       /* (I, J, Q, R) */
    const float *scale;        /* (K,) or (I, J, K), or null */
    const float *shift;        /* the same */
    const float *softness;     /* one value, or null */
    const float *child_weight; /* (B, I), or null */
    float *total, *squares;    /* (B, J, K): results of the forward pass */
    const float *grad_total, *grad_squares; /* (B, J, K) */
    float *grad_u;             /* (B, I, D) */
    float *grad_weight;        /* (I, J, Q, R) */
    float *grad_scale, *grad_shift; /* (I, J, K); only PER_VOTE */
    double *shared;            /* (2 K + 1): gradients of scale and shift, only PER_DIMENSION, and of softness */
    float *grad_child_weight;  /* (B, I), or null */
    const float *agreed;       /* V, (B, J, K): for coupled sums */
    float *coupled;            /* sum of c v, (B, J, K) */
    const float *grad_coupled; /* (B, J, K) */
    float *grad_agreed;        /* (B, J, K) */
} Job;

typedef struct {
    const Job *job;
    int64_t tasks, next, vectors;
    int failed;
    vec *slope, *curve; /* backward: A and 2 D as (J, vectors, K) */
    double *partial;    /* backward: (tasks, 2 K + 1) */
    vec *of_agreed;     /* backward of coupled sums: gradient of V, (tasks, J, vectors, K) */
    void (*run)(void *, int64_t);
} Work;

/* --- threads ------------------------------------------------------------------------------------------------------- */

static void *work_until_done(void *argument) {
    Work *work = argument;
    for (;;) {
        int64_t task = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
        if (task >= work->tasks) return NULL;
        work->run(work, task);
    }
}

static void run_tasks(Work *work) {
    enum { MOST = 256 };
    pthread_t threads[MOST];
    int64_t wanted = work->job->threads < work->tasks ? work->job->threads : work->tasks;
    int64_t others = wanted - 1 < MOST ? wanted - 1 : MOST, started = 0;
    while (started < others && pthread_create(&threads[started], NULL, work_until_done, work) == 0) started++;
    work_until_done(work); /* this thread does its share, and everything if no other could be started */
    while (started > 0) pthread_join(threads[--started], NULL);
}

static void *memory(Work *work, int64_t bytes) {
    void *found = NULL;
    if (posix_memalign(&found, 64, bytes > 64 ? bytes : 64)) {
        __atomic_store_n(&work->failed, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    return found;
}

/* --- lanes --------------------------------------------------------------------------------------------------------- */

/* Values (images, width) of up to LANES images, rows `stride` apart, to `width` vectors; absent images are zero. */
static void to_lanes(const float *from, int64_t stride, int64_t images, int64_t width, vec *to) {
    float *flat = (float *)to;
    if (images < LANES) memset(to, 0, width * sizeof(vec));
    for (int64_t k0 = 0; k0 < width; k0 += 16) {
        int64_t end = k0 + 16 < width ? k0 + 16 : width;
        for (int64_t b = 0; b < images; b++)
            for (int64_t k = k0; k < end; k++) flat[k * LANES + b] = from[b * stride + k];
    }
}

static void from_lanes(const vec *from, int64_t images, int64_t width, float *to, int64_t stride) {
    const float *flat = (const float *)from;
    for (int64_t k0 = 0; k0 < width; k0 += 16) {
        int64_t end = k0 + 16 < width ? k0 + 16 : width;
        for (int64_t b = 0; b < images; b++)
            for (int64_t k = k0; k < end; k++) to[b * stride + k] = flat[k * LANES + b];
    }
}

INLINE float sum_of_lanes(vec x) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += x[lane];
    return sum;
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define CAN_SHUFFLE 1
#endif
#endif

#ifdef CAN_SHUFFLE
/* Half as many lanes of each, side by side: lane 2 n has a sum of x, lane 2 n + 1 one of y. */
INLINE vec add_halves(vec x, vec y) {
#if LANES == 16
    return __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23) +
           __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif LANES == 8
    return __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11) +
           __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    return __builtin_shufflevector(x, y, 0, 4, 1, 5) + __builtin_shufflevector(x, y, 2, 6, 3, 7);
#endif
}
#endif

/* Sums over the lanes of 16 vectors. */
INLINE void sums_of_lanes(vec x[16], float sums[16]) {
#ifdef CAN_SHUFFLE
    /* each step halves the number of vectors; vectors that end in neighbouring lanes are far apart at first */
    for (int first = 0; first < 16; first += LANES) {
        for (int half = LANES / 2; half >= 1; half /= 2)
            for (int k = 0; k < half; k++) x[first + k] = add_halves(x[first + k], x[first + k + half]);
        memcpy(sums + first, &x[first], sizeof(vec));
    }
#else
    for (int k = 0; k < 16; k++) sums[k] = sum_of_lanes(x[k]);
#endif
}

/* 1 / sqrt(max(x, ABSENT_SQUARED)); zero where x is infinite */
INLINE vec inverse_root(vec x) {
    x = (vec)(((ints)x & (x > ABSENT_SQUARED)) | ((ints)SPLAT(ABSENT_SQUARED) & ~(x > ABSENT_SQUARED)));
#ifdef ROUGH_RSQRT
    vec y = ROUGH_RSQRT(x); /* 12 or 14 bits, which one step of Newton doubles */
    vec error = FMA(-(x * y), y, SPLAT(1.0f));
    return (vec)((ints)FMA(y * SPLAT(0.5f), error, y) & (x < SPLAT(INFINITY)));
#else
    vec y;
    for (int lane = 0; lane < LANES; lane++) y[lane] = 1.0f / sqrtf(x[lane]);
    return y;
#endif
}

/* --- votes --------------------------------------------------------------------------------------------------------- */

/* Folded weights and shifts of one child and one parent: v = u F + h for every row. */
typedef struct {
    const float *weight; /* (P, Q, R), rows of a child `step` apart; 0 if all share them */
    const float *shift;  /* (P, R), or null */
    int64_t step;
} Folded;

/* Fold batch norm into the weights of one pair; without it, they are read where they lie. */
INLINE Folded fold(const Job *job, int64_t i, int64_t j, int P, int Q, int R, float *room) {
    const float *weight = job->weight + (i * job->parents + j) * Q * R;
    if (job->affine == PLAIN) return (Folded){weight, NULL, 0};
    int64_t at = job->affine == PER_VOTE ? (i * job->parents + j) * P * R : 0;
    const float *scale = job->scale + at;
    int scaled = Q - (int)job->unscaled;
    for (int p = 0; p < P; p++)
        for (int q = 0; q < Q; q++)
            for (int r = 0; r < R; r++)
                room[(p * Q + q) * R + r] = q < scaled ? weight[q * R + r] * scale[p * R + r] : weight[q * R + r];
    return (Folded){room, job->shift + at, (int64_t)Q * R};
}

/* WIDE columns of a row of N vectors of votes, and the sums of their squares so far. */
INLINE void cast_columns(int WIDE, int N, int Q, int R, const vec *u, int64_t u_step, const float *weight,
                         const float *shift, vec *votes, int64_t votes_step, vec squares[2]) {
    vec sum[2][8], more[2] = {{0}, {0}};
    for (int n = 0; n < N; n++)
        for (int r = 0; r < WIDE; r++) sum[n][r] = shift ? SPLAT(shift[r]) : (vec){0};
    for (int q = 0; q < Q; q++) {
        vec x[2];
        for (int n = 0; n < N; n++) x[n] = u[n * u_step + q];
        for (int r = 0; r < WIDE; r++) {
            vec w = SPLAT(weight[q * R + r]);
            for (int n = 0; n < N; n++) sum[n][r] = FMA(w, x[n], sum[n][r]);
        }
    }
    for (int n = 0; n < N; n++) {
        for (int r = 0; r < WIDE; r++) {
            votes[n * votes_step + r] = sum[n][r];
            if (r % 2) squares[n] = FMA(sum[n][r], sum[n][r], squares[n]);
            else more[n] = FMA(sum[n][r], sum[n][r], more[n]);
        }
        squares[n] += more[n];
    }
}

/* N vectors of votes of one child for one parent, and the squares of their lengths. */
INLINE void cast(int N, int P, int Q, int R, const vec *u, int64_t u_step, Folded folded, vec *votes,
                 int64_t votes_step, vec squares[2]) {
    squares[0] = squares[1] = (vec){0};
    for (int p = 0; p < P; p++) {
        const float *weight = folded.weight + p * folded.step;
        const float *shift = folded.shift ? folded.shift + p * R : NULL;
        int r = 0;
        for (; r + 8 <= R; r += 8)
            cast_columns(8, N, Q, R, u + p * Q, u_step, weight + r, shift ? shift + r : NULL, votes + p * R + r,
                         votes_step, squares);
        for (; r + 4 <= R; r += 4)
            cast_columns(4, N, Q, R, u + p * Q, u_step, weight + r, shift ? shift + r : NULL, votes + p * R + r,
                         votes_step, squares);
        for (; r < R; r++)
            cast_columns(1, N, Q, R, u + p * Q, u_step, weight + r, shift ? shift + r : NULL, votes + p * R + r,
                         votes_step, squares);
    }
}

/* --- forward pass -------------------------------------------------------------------------------------------------- */

/* Add WIDE dimensions of the votes of a few children to their sums: S += x r v and Z += (x r v)^2. */
INLINE void add_dimensions(int WIDE, int64_t children, int64_t K, const vec *votes, const vec *factor, vec *total,
                           vec *squares) {
    vec s[8], z[8];
    for (int k = 0; k < WIDE; k++) s[k] = total[k], z[k] = squares[k];
    for (int64_t i = 0; i < children; i++)
        for (int k = 0; k < WIDE; k++) {
            vec v = votes[i * 2 * K + k] * factor[2 * i];
            s[k] += v;
            z[k] = FMA(v, v, z[k]);
        }
    for (int k = 0; k < WIDE; k++) total[k] = s[k], squares[k] = z[k];
}

/* Memory of a task of the forward pass. */
typedef struct {
    vec *u;         /* (vectors, children, D) */
    vec *x;         /* (vectors, children) */
    vec *votes;     /* (TOGETHER, 2, K) */
    vec *recent;    /* (2, vectors, K): sums over the children of a block */
    double *sums;   /* (parents, vectors, 2, K, LANES) */
    float *folded;  /* (children, D R) */
    void *all;
} Forward;

/* The votes of a block of children for one parent, in N neighbouring vectors of images. */
INLINE void sum_block(const Job *job, const Forward *room, int N, int P, int Q, int R, int64_t children,
                      const Folded *folded, const vec *u, const vec *x, vec *recent) {
    int64_t K = (int64_t)P * R, D = (int64_t)P * Q;
    vec c = SPLAT(job->softness ? *job->softness : 0.0f);
    for (int64_t first = 0; first < children; first += TOGETHER) {
        int64_t some = children - first < TOGETHER ? children - first : TOGETHER;
        vec factor[2 * TOGETHER];
        for (int64_t i = 0; i < some; i++) {
            vec squares[2];
            cast(N, P, Q, R, u + (first + i) * D, CHILDREN * D, folded[first + i], room->votes + i * 2 * K, K, squares);
            for (int n = 0; n < N; n++) {
                vec f = job->normalize ? inverse_root(squares[n] + c) : SPLAT(1.0f);
                factor[2 * i + n] = job->child_weight ? f * x[n * CHILDREN + first + i] : f;
            }
        }
        for (int n = 0; n < N; n++) {
            vec *total = recent + n * 2 * K, *squares = total + K;
            int64_t k = 0;
            for (; k + 8 <= K; k += 8)
                add_dimensions(8, some, K, room->votes + n * K + k, factor + n, total + k, squares + k);
            for (; k < K; k++)
                add_dimensions(1, some, K, room->votes + n * K + k, factor + n, total + k, squares + k);
        }
    }
}

INLINE void forward_task(Work *work, int64_t task, int P, int Q, int R) {
    const Job *job = work->job;
    int64_t I = job->children, J = job->parents, K = (int64_t)P * R, D = (int64_t)P * Q;
    int64_t chunks = (J + FORWARD_PARENTS - 1) / FORWARD_PARENTS;
    int64_t first_vector = task / chunks * FORWARD_VECTORS, first_parent = task % chunks * FORWARD_PARENTS;
    int64_t vectors = work->vectors - first_vector < FORWARD_VECTORS ? work->vectors - first_vector : FORWARD_VECTORS;
    int64_t parents = J - first_parent < FORWARD_PARENTS ? J - first_parent : FORWARD_PARENTS;

    /* memory */
    Forward room;
    int64_t n_u = vectors * CHILDREN * D, n_x = vectors * CHILDREN, n_votes = TOGETHER * 2 * K, n_recent = 2 * vectors * K;
    int64_t n_sums = parents * vectors * 2 * K * LANES, n_folded = CHILDREN * D * R;
    int64_t n_vectors = n_u + n_x + n_votes + n_recent;
    room.all = memory(work, n_vectors * sizeof(vec) + n_sums * sizeof(double) + n_folded * sizeof(float));
    if (!room.all) return;
    room.u = room.all, room.x = room.u + n_u, room.votes = room.x + n_x, room.recent = room.votes + n_votes;
    room.sums = (double *)(room.recent + n_recent), room.folded = (float *)(room.sums + n_sums);
    memset(room.sums, 0, n_sums * sizeof(double));

    for (int64_t i0 = 0; i0 < I; i0 += CHILDREN) {
        int64_t children = I - i0 < CHILDREN ? I - i0 : CHILDREN;
        /* children of these images, a lane each */
        for (int64_t n = 0; n < vectors; n++) {
            int64_t b = (first_vector + n) * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
            to_lanes(job->u + (b * I + i0) * D, I * D, images, children * D, room.u + n * CHILDREN * D);
            if (job->child_weight)
                to_lanes(job->child_weight + b * I + i0, I, images, children, room.x + n * CHILDREN);
        }
        for (int64_t j = 0; j < parents; j++) {
            Folded folded[CHILDREN];
            for (int64_t i = 0; i < children; i++)
                folded[i] = fold(job, i0 + i, first_parent + j, P, Q, R, room.folded + i * D * R);
            memset(room.recent, 0, n_recent * sizeof(vec));
            int64_t n = 0;
            for (; n + 2 <= vectors; n += 2)
                sum_block(job, &room, 2, P, Q, R, children, folded, room.u + n * CHILDREN * D, room.x + n * CHILDREN,
                          room.recent + n * 2 * K);
            for (; n < vectors; n++)
                sum_block(job, &room, 1, P, Q, R, children, folded, room.u + n * CHILDREN * D, room.x + n * CHILDREN,
                          room.recent + n * 2 * K);
            /* in double precision, so that the number of blocks does not matter */
            const float *recent = (const float *)room.recent;
            double *sums = room.sums + j * vectors * 2 * K * LANES;
            for (int64_t k = 0; k < vectors * 2 * K * LANES; k++) sums[k] += recent[k];
        }
    }

    /* results */
    for (int64_t j = 0; j < parents; j++)
        for (int64_t n = 0; n < vectors; n++) {
            double *sums = room.sums + (j * vectors + n) * 2 * K * LANES;
            float *rounded = (float *)room.recent;
            for (int64_t k = 0; k < 2 * K * LANES; k++) rounded[k] = (float)sums[k];
            int64_t b = (first_vector + n) * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
            int64_t at = (b * J + first_parent + j) * K;
            from_lanes(room.recent, images, K, job->total + at, J * K);
            from_lanes(room.recent + K, images, K, job->squares + at, J * K);
        }
    free(room.all);
}

/* --- backward pass ------------------------------------------------------------------------------------------------- */

/* Gradient of one vector of votes, in place of the votes, from their squared lengths and the gradients of the sums.
 *
 * The gradient of a weighted unit vote is A + 2 D x r v, in two steps: fused, the product would not be rounded and not
 * cancel where votes have nothing to agree with. */
INLINE void grade_some_votes(const int NORMALIZE, const int WEIGHTED, int64_t K, vec *votes, vec squares, const vec *slope,
                             const vec *curve, vec x, vec *grad_x, vec *grad_softness) {
    vec factor = NORMALIZE ? inverse_root(squares) : SPLAT(1.0f);
    vec along[2] = {{0}, {0}};
    for (int64_t k = 0; k < K; k++) {
        vec unit = NORMALIZE ? votes[k] * factor : votes[k];
        vec grad = WEIGHTED ? curve[k] * unit * x + slope[k] : curve[k] * unit + slope[k];
        if (NORMALIZE || WEIGHTED) along[k % 2] = FMA(unit, grad, along[k % 2]);
        votes[k] = NORMALIZE ? unit : WEIGHTED ? grad * x : grad;
    }
    vec whole = along[0] + along[1];
    if (WEIGHTED) {
        *grad_x += whole;
        whole = whole * x;
    }
    if (!NORMALIZE) return;
    *grad_softness += whole * (factor * factor);
    /* what is absent is divided by a constant, not by its length, so its share in the length drops out */
    whole = (vec)((ints)whole & (factor < PRESENT));
    for (int64_t k = 0; k < K; k++) {
        vec unit = votes[k];
        vec grad = WEIGHTED ? (curve[k] * unit * x + slope[k]) * x : curve[k] * unit + slope[k];
        votes[k] = FMA(-unit, whole, grad) * factor;
    }
}

INLINE void grade_votes(const Job *job, int64_t K, vec *votes, vec squares, const vec *slope, const vec *curve, vec x,
                        vec *grad_x, vec *grad_softness) {
    squares += SPLAT(job->softness ? *job->softness : 0.0f);
    if (job->normalize && job->child_weight)
        grade_some_votes(1, 1, K, votes, squares, slope, curve, x, grad_x, grad_softness);
    else if (job->normalize)
        grade_some_votes(1, 0, K, votes, squares, slope, curve, x, grad_x, grad_softness);
    else if (job->child_weight)
        grade_some_votes(0, 1, K, votes, squares, slope, curve, x, grad_x, grad_softness);
    else
        grade_some_votes(0, 0, K, votes, squares, slope, curve, x, grad_x, grad_softness);
}

/* WIDE values of N vectors of one row of a child: du += F dv. */
INLINE void grade_values(int WIDE, int N, int R, const float *weight, const vec *votes, int64_t votes_step, vec *grad_u,
                         int64_t u_step) {
    vec sum[2][8];
    for (int n = 0; n < N; n++)
        for (int q = 0; q < WIDE; q++) sum[n][q] = grad_u[n * u_step + q];
    for (int r = 0; r < R; r++) {
        vec dv[2];
        for (int n = 0; n < N; n++) dv[n] = votes[n * votes_step + r];
        for (int q = 0; q < WIDE; q++) {
            vec w = SPLAT(weight[q * R + r]);
            for (int n = 0; n < N; n++) sum[n][q] = FMA(w, dv[n], sum[n][q]);
        }
    }
    for (int n = 0; n < N; n++)
        for (int q = 0; q < WIDE; q++) grad_u[n * u_step + q] = sum[n][q];
}

INLINE void grade_child(int N, int P, int Q, int R, Folded folded, const vec *votes, int64_t votes_step, vec *grad_u,
                        int64_t u_step) {
    for (int p = 0; p < P; p++) {
        const float *weight = folded.weight + p * folded.step;
        int q = 0;
        for (; q + 8 <= Q; q += 8)
            grade_values(8, N, R, weight + q * R, votes + p * R, votes_step, grad_u + p * Q + q, u_step);
        for (; q + 4 <= Q; q += 4)
            grade_values(4, N, R, weight + q * R, votes + p * R, votes_step, grad_u + p * Q + q, u_step);
        for (; q < Q; q++)
            grade_values(1, N, R, weight + q * R, votes + p * R, votes_step, grad_u + p * Q + q, u_step);
    }
}

/* A square of the gradient of the folded weights of one row, dF = sum over images of u dv. */
INLINE void grade_square(int ROWS, int COLUMNS, int R, int64_t vectors, const vec *u, int64_t D, const vec *votes,
                         int64_t K, float *grad) {
    vec sum[16];
    for (int at = 0; at < ROWS * COLUMNS; at++) sum[at] = (vec){0};
    for (int64_t n = 0; n < vectors; n++)
        for (int q = 0; q < ROWS; q++)
            for (int r = 0; r < COLUMNS; r++)
                sum[q * COLUMNS + r] = FMA(u[n * D + q], votes[n * K + r], sum[q * COLUMNS + r]);
    if (ROWS * COLUMNS == 16) {
        float sums[16];
        sums_of_lanes(sum, sums);
        for (int q = 0; q < ROWS; q++) memcpy(grad + q * R, sums + q * COLUMNS, COLUMNS * sizeof(float));
    } else {
        for (int q = 0; q < ROWS; q++)
            for (int r = 0; r < COLUMNS; r++) grad[q * R + r] = sum_of_lanes(sum[q * COLUMNS + r]);
    }
}

/* Gradient of the folded weights of one pair, (P, Q, R). */
INLINE void grade_folded(int P, int Q, int R, int64_t vectors, const vec *u, const vec *votes, float *grad) {
    int64_t D = (int64_t)P * Q, K = (int64_t)P * R;
    for (int p = 0; p < P; p++) {
        const vec *row = u + p * Q, *votes_row = votes + p * R;
        float *to = grad + (int64_t)p * Q * R;
        int q = 0;
        for (; q + 4 <= Q; q += 4) {
            int r = 0;
            for (; r + 4 <= R; r += 4)
                grade_square(4, 4, R, vectors, row + q, D, votes_row + r, K, to + q * R + r);
            for (; r < R; r++) grade_square(4, 1, R, vectors, row + q, D, votes_row + r, K, to + q * R + r);
        }
        for (; q < Q; q++) {
            int r = 0;
            for (; r + 4 <= R; r += 4)
                grade_square(1, 4, R, vectors, row + q, D, votes_row + r, K, to + q * R + r);
            for (; r < R; r++) grade_square(1, 1, R, vectors, row + q, D, votes_row + r, K, to + q * R + r);
        }
    }
}

/* Undo the folding: gradients of the weights, the scale and the shift of one pair; added to where `more`. */
INLINE void unfold(const Job *job, int64_t i, int64_t j, int P, int Q, int R, int64_t vectors, const vec *votes,
                   const float *grad, int more, double *shared) {
    int64_t K = (int64_t)P * R, pair = i * job->parents + j;
    const float *weight = job->weight + pair * Q * R;
    float *grad_weight = job->grad_weight + pair * Q * R;
    if (!more) memset(grad_weight, 0, (int64_t)Q * R * sizeof(float));
    if (job->affine == PLAIN) {
        for (int p = 0; p < P; p++)
            for (int at = 0; at < Q * R; at++) grad_weight[at] += grad[p * Q * R + at];
        return;
    }
    const float *scale = job->scale + (job->affine == PER_VOTE ? pair * K : 0);
    int scaled = Q - (int)job->unscaled;
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++) {
            float of_scale = 0, g = scale[p * R + r];
            const float *column = grad + (int64_t)p * Q * R + r;
            for (int q = 0; q < scaled; q++) {
                grad_weight[q * R + r] += g * column[q * R];
                of_scale += weight[q * R + r] * column[q * R];
            }
            for (int q = scaled; q < Q; q++) grad_weight[q * R + r] += column[q * R];
            int64_t k = (int64_t)p * R + r;
            vec sum = {0};
            for (int64_t n = 0; n < vectors; n++) sum += votes[n * K + k];
            float of_shift = sum_of_lanes(sum);
            if (job->affine == PER_DIMENSION) {
                shared[k] += of_scale;
                shared[K + k] += of_shift;
            } else {
                job->grad_scale[pair * K + k] = of_scale + (more ? job->grad_scale[pair * K + k] : 0);
                job->grad_shift[pair * K + k] = of_shift + (more ? job->grad_shift[pair * K + k] : 0);
            }
        }
}

INLINE void backward_task(Work *work, int64_t task, int P, int Q, int R) {
    const Job *job = work->job;
    int64_t I = job->children, J = job->parents, K = (int64_t)P * R, D = (int64_t)P * Q;
    double *shared = work->partial + task * (2 * K + 1);

    /* memory */
    int64_t most = work->vectors < BACKWARD_VECTORS ? work->vectors : BACKWARD_VECTORS;
    int64_t n_values = BACKWARD_CHILDREN * most * D, n_x = BACKWARD_CHILDREN * most, n_votes = most * K;
    vec *u = memory(work, (2 * n_values + 2 * n_x + n_votes) * sizeof(vec) + 2 * D * R * sizeof(float));
    if (!u) return;
    vec *grad_u = u + n_values, *x = grad_u + n_values, *grad_x = x + n_x, *votes = grad_x + n_x;
    float *folded_weights = (float *)(votes + n_votes), *grad_folded = folded_weights + D * R;

    int64_t from = I * task / work->tasks, to = I * (task + 1) / work->tasks;
    for (int64_t i0 = from; i0 < to; i0 += BACKWARD_CHILDREN) {
        int64_t children = to - i0 < BACKWARD_CHILDREN ? to - i0 : BACKWARD_CHILDREN;
        for (int64_t n0 = 0; n0 < work->vectors; n0 += most) {
            int64_t vectors = work->vectors - n0 < most ? work->vectors - n0 : most;
            /* children of these images, a lane each */
            for (int64_t i = 0; i < children; i++)
                for (int64_t n = 0; n < vectors; n++) {
                    int64_t b = (n0 + n) * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
                    to_lanes(job->u + (b * I + i0 + i) * D, I * D, images, D, u + (i * most + n) * D);
                    if (job->child_weight)
                        to_lanes(job->child_weight + b * I + i0 + i, I, images, 1, x + i * most + n);
                }
            memset(grad_u, 0, n_values * sizeof(vec));
            memset(grad_x, 0, n_x * sizeof(vec));
            for (int64_t j = 0; j < J; j++) {
                const vec *slope = work->slope + (j * work->vectors + n0) * K;
                const vec *curve = work->curve + (j * work->vectors + n0) * K;
                for (int64_t i = 0; i < children; i++) {
                    Folded folded = fold(job, i0 + i, j, P, Q, R, folded_weights);
                    const vec *child = u + i * most * D;
                    vec *grad_child = grad_u + i * most * D;
                    vec grad_softness = {0};
                    /* the votes again, their gradients, and those of the child, two vectors of images at a time */
                    for (int64_t n = 0; n < vectors; n += 2) {
                        int two = n + 2 <= vectors;
                        vec squares[2], *some = votes + n * K;
                        if (two) cast(2, P, Q, R, child + n * D, D, folded, some, K, squares);
                        else cast(1, P, Q, R, child + n * D, D, folded, some, K, squares);
                        for (int m = 0; m <= two; m++) {
                            int64_t at = i * most + n + m;
                            vec weight_of_child = job->child_weight ? x[at] : SPLAT(1.0f);
                            grade_votes(job, K, some + m * K, squares[m], slope + (n + m) * K, curve + (n + m) * K,
                                        weight_of_child, &grad_x[at], &grad_softness);
                        }
                        if (two) grade_child(2, P, Q, R, folded, some, K, grad_child + n * D, D);
                        else grade_child(1, P, Q, R, folded, some, K, grad_child + n * D, D);
                    }
                    /* one number for all votes, which cancel: in double precision after a few of them */
                    for (int lane = 0; job->softness && lane < LANES; lane++)
                        shared[2 * K] -= 0.5 * (double)grad_softness[lane];
                    grade_folded(P, Q, R, vectors, child, votes, grad_folded);
                    unfold(job, i0 + i, j, P, Q, R, vectors, votes, grad_folded, n0 > 0, shared);
                }
            }
            for (int64_t i = 0; i < children; i++)
                for (int64_t n = 0; n < vectors; n++) {
                    int64_t b = (n0 + n) * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
                    from_lanes(grad_u + (i * most + n) * D, images, D, job->grad_u + (b * I + i0 + i) * D, I * D);
                    if (job->grad_child_weight)
                        from_lanes(grad_x + i * most + n, images, 1, job->grad_child_weight + b * I + i0 + i, I);
                }
        }
    }
    free(u);
}

/* --- coupled sums, for dynamic routing ----------------------------------------------------------------------------- */

/* exp(x) for x from -87 to 0; smaller ones give what -87 gives, nearly zero. */
INLINE vec exponential(vec x) {
    vec least = SPLAT(-87.0f);
    x = (vec)(((ints)x & (x > least)) | ((ints)least & ~(x > least)) | ((ints)x & (x != x)));
    /* x = n ln 2 + rest, |rest| < 0.35: adding and taking away 1.5 * 2^23 rounds to a whole number */
    vec whole = FMA(x, SPLAT(1.44269504f), SPLAT(12582912.0f)) - SPLAT(12582912.0f);
    vec rest = FMA(whole, SPLAT(-1.42860677e-6f), FMA(whole, SPLAT(-0.693145752f), x));
    vec sum = SPLAT(1.0f / 720);
    sum = FMA(sum, rest, SPLAT(1.0f / 120));
    sum = FMA(sum, rest, SPLAT(1.0f / 24));
    sum = FMA(sum, rest, SPLAT(1.0f / 6));
    sum = FMA(sum, rest, SPLAT(0.5f));
    sum = FMA(sum, rest, SPLAT(1.0f));
    sum = FMA(sum, rest, SPLAT(1.0f));
    return (vec)((ints)sum + (__builtin_convertvector(whole, ints) << 23));
}

INLINE vec dot(int64_t K, const vec *x, const vec *y) {
    vec sum[2] = {{0}, {0}};
    for (int64_t k = 0; k < K; k++) sum[k % 2] = FMA(x[k], y[k], sum[k % 2]);
    return sum[0] + sum[1];
}

/* Coupling of a child to its parents, for one vector of images: softmax over j of <v_j, V_j>.
 *
 * Votes of parent j are `votes_step` further on than those of the one before, V are `agreed_step`. */
INLINE void couple(int64_t J, int64_t K, const vec *votes, int64_t votes_step, const vec *agreed, int64_t agreed_step,
                   vec *coupling) {
    vec most = SPLAT(-INFINITY), sum = {0};
    for (int64_t j = 0; j < J; j++) {
        vec logit = dot(K, votes + j * votes_step, agreed + j * agreed_step);
        most = (vec)(((ints)logit & (logit > most)) | ((ints)most & ~(logit > most)));
        coupling[j] = logit;
    }
    for (int64_t j = 0; j < J; j++) {
        coupling[j] = exponential(coupling[j] - most);
        sum += coupling[j];
    }
    vec share = SPLAT(1.0f) / sum;
    for (int64_t j = 0; j < J; j++) coupling[j] = coupling[j] * share;
}

INLINE void coupled_task(Work *work, int64_t task, int P, int Q, int R) {
    const Job *job = work->job;
    int64_t I = job->children, J = job->parents, K = (int64_t)P * R, D = (int64_t)P * Q, first = task * COUPLED_VECTORS;
    int64_t vectors = work->vectors - first < COUPLED_VECTORS ? work->vectors - first : COUPLED_VECTORS;

    /* memory */
    int64_t n_u = vectors * CHILDREN * D, n_votes = J * vectors * K;
    vec *u = memory(work, (n_u + 2 * n_votes + J) * sizeof(vec) + n_votes * LANES * sizeof(double) + D * R * sizeof(float));
    if (!u) return;
    vec *votes = u + n_u, *recent = votes + n_votes, *coupling = recent + n_votes;
    double *sums = (double *)(coupling + J);
    float *room = (float *)(sums + n_votes * LANES);
    memset(sums, 0, n_votes * LANES * sizeof(double));

    for (int64_t i0 = 0; i0 < I; i0 += CHILDREN) {
        int64_t children = I - i0 < CHILDREN ? I - i0 : CHILDREN;
        for (int64_t n = 0; n < vectors; n++) {
            int64_t b = (first + n) * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
            to_lanes(job->u + (b * I + i0) * D, I * D, images, children * D, u + n * CHILDREN * D);
        }
        memset(recent, 0, n_votes * sizeof(vec));
        for (int64_t i = 0; i < children; i++) {
            vec unused[2];
            for (int64_t j = 0; j < J; j++) {
                Folded folded = fold(job, i0 + i, j, P, Q, R, room);
                if (vectors == 2) cast(2, P, Q, R, u + i * D, CHILDREN * D, folded, votes + j * 2 * K, K, unused);
                else cast(1, P, Q, R, u + i * D, CHILDREN * D, folded, votes + j * K, K, unused);
            }
            for (int64_t n = 0; n < vectors; n++) {
                couple(J, K, votes + n * K, vectors * K, work->curve + (first + n) * K, work->vectors * K, coupling);
                for (int64_t j = 0; j < J; j++) {
                    int64_t at = (j * vectors + n) * K;
                    for (int64_t k = 0; k < K; k++) recent[at + k] = FMA(coupling[j], votes[at + k], recent[at + k]);
                }
            }
        }
        for (int64_t k = 0; k < n_votes * LANES; k++) sums[k] += ((const float *)recent)[k];
    }
    for (int64_t k = 0; k < n_votes * LANES; k++) ((float *)recent)[k] = (float)sums[k];
    for (int64_t j = 0; j < J; j++)
        for (int64_t n = 0; n < vectors; n++) {
            int64_t b = (first + n) * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
            from_lanes(recent + (j * vectors + n) * K, images, K, job->coupled + (b * J + j) * K, J * K);
        }
    free(u);
}

/* With G the gradient of the sums and g_j = <G_j, v_j>, the gradient of a logit is l_j = c_j (g_j - sum of c g), that of
 * a vote c_j G_j + l_j V_j, and that of V_j the sum of l_j v_j over the children. */
INLINE void uncouple_task(Work *work, int64_t task, int P, int Q, int R) {
    const Job *job = work->job;
    int64_t I = job->children, J = job->parents, K = (int64_t)P * R, D = (int64_t)P * Q, step = work->vectors * K;
    double *shared = work->partial + task * (2 * K + 1);
    vec *of_agreed = work->of_agreed + task * J * step;
    memset(of_agreed, 0, J * step * sizeof(vec));

    /* memory */
    int64_t most = COUPLED_BYTES / (J * K * (int64_t)sizeof(vec));
    most = most < 1 ? 1 : most > BACKWARD_VECTORS ? BACKWARD_VECTORS : most;
    most = most < work->vectors ? most : work->vectors;
    int64_t n_votes = J * most * K;
    vec *u = memory(work, (2 * most * D + n_votes + 2 * J) * sizeof(vec) + 2 * D * R * sizeof(float));
    if (!u) return;
    vec *grad_u = u + most * D, *votes = grad_u + most * D, *coupling = votes + n_votes, *along = coupling + J;
    float *folded_weights = (float *)(along + J), *grad_folded = folded_weights + D * R;

    int64_t from = I * task / work->tasks, to = I * (task + 1) / work->tasks;
    for (int64_t i = from; i < to; i++)
        for (int64_t n0 = 0; n0 < work->vectors; n0 += most) {
            int64_t vectors = work->vectors - n0 < most ? work->vectors - n0 : most;
            for (int64_t n = 0; n < vectors; n++) {
                int64_t b = (n0 + n) * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
                to_lanes(job->u + (b * I + i) * D, I * D, images, D, u + n * D);
            }
            /* the votes again, and their gradients in place of them */
            for (int64_t j = 0; j < J; j++) {
                Folded folded = fold(job, i, j, P, Q, R, folded_weights);
                vec unused[2], *some = votes + j * most * K;
                int64_t n = 0;
                for (; n + 2 <= vectors; n += 2) cast(2, P, Q, R, u + n * D, D, folded, some + n * K, K, unused);
                for (; n < vectors; n++) cast(1, P, Q, R, u + n * D, D, folded, some + n * K, K, unused);
            }
            for (int64_t n = 0; n < vectors; n++) {
                const vec *agreed = work->curve + (n0 + n) * K, *slope = work->slope + (n0 + n) * K;
                vec *some = votes + n * K, *of_v = of_agreed + (n0 + n) * K, mean = {0};
                couple(J, K, some, most * K, agreed, step, coupling);
                for (int64_t j = 0; j < J; j++) {
                    along[j] = dot(K, some + j * most * K, slope + j * step);
                    mean = FMA(coupling[j], along[j], mean);
                }
                for (int64_t j = 0; j < J; j++) {
                    vec of_logit = coupling[j] * (along[j] - mean), *v = some + j * most * K;
                    for (int64_t k = 0; k < K; k++) {
                        of_v[j * step + k] = FMA(of_logit, v[k], of_v[j * step + k]);
                        v[k] = FMA(of_logit, agreed[j * step + k], coupling[j] * slope[j * step + k]);
                    }
                }
            }
            /* gradients of the child and of its weights */
            memset(grad_u, 0, most * D * sizeof(vec));
            for (int64_t j = 0; j < J; j++) {
                Folded folded = fold(job, i, j, P, Q, R, folded_weights);
                const vec *some = votes + j * most * K;
                int64_t n = 0;
                for (; n + 2 <= vectors; n += 2) grade_child(2, P, Q, R, folded, some + n * K, K, grad_u + n * D, D);
                for (; n < vectors; n++) grade_child(1, P, Q, R, folded, some + n * K, K, grad_u + n * D, D);
                grade_folded(P, Q, R, vectors, u, some, grad_folded);
                unfold(job, i, j, P, Q, R, vectors, some, grad_folded, n0 > 0, shared);
            }
            for (int64_t n = 0; n < vectors; n++) {
                int64_t b = (n0 + n) * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
                from_lanes(grad_u + n * D, images, D, job->grad_u + (b * I + i) * D, I * D);
            }
        }
    free(u);
}

/* --- sizes known to the compiler, and the rest ---------------------------------------------------------------------- */

#define FOR_SIZES(pass)                                                                     \
    static void pass##_1_8_16(void *work, int64_t task) { pass##_task(work, task, 1, 8, 16); }    \
    static void pass##_1_16_16(void *work, int64_t task) { pass##_task(work, task, 1, 16, 16); }  \
    static void pass##_4_4_4(void *work, int64_t task) { pass##_task(work, task, 4, 4, 4); }      \
    static void pass##_any(void *work, int64_t task) {                                            \
        const Job *job = ((Work *)work)->job;                                                     \
        pass##_task(work, task, (int)job->rows, (int)job->inner, (int)job->columns);              \
    }                                                                                             \
    static void (*pass##_for(const Job *job))(void *, int64_t) {                                  \
        int64_t P = job->rows, Q = job->inner, R = job->columns;                                  \
        if (P == 1 && Q == 8 && R == 16) return pass##_1_8_16;                                    \
        if (P == 1 && Q == 16 && R == 16) return pass##_1_16_16;                                  \
        if (P == 4 && Q == 4 && R == 4) return pass##_4_4_4;                                      \
        return pass##_any;                                                                        \
    }

FOR_SIZES(forward)
FOR_SIZES(backward)
FOR_SIZES(coupled)
FOR_SIZES(uncouple)

/* --- what Python calls ---------------------------------------------------------------------------------------------- */

/* S and Z. Returns 0, or 1 if there was not enough memory. */
int paircaps_sums(const Job *job) {
    Work work = {.job = job, .vectors = (job->batch + LANES - 1) / LANES, .run = forward_for(job)};
    int64_t groups = (work.vectors + FORWARD_VECTORS - 1) / FORWARD_VECTORS;
    work.tasks = groups * ((job->parents + FORWARD_PARENTS - 1) / FORWARD_PARENTS);
    run_tasks(&work);
    return work.failed;
}

/* Values of (B, J, K) with a lane for each image, as (J, vectors, K). */
static void all_to_lanes(const Work *work, const float *from, vec *to) {
    const Job *job = work->job;
    int64_t J = job->parents, K = job->rows * job->columns;
    for (int64_t j = 0; j < J; j++)
        for (int64_t n = 0; n < work->vectors; n++) {
            int64_t b = n * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
            to_lanes(from + (b * J + j) * K, J * K, images, K, to + (j * work->vectors + n) * K);
        }
}

/* Add up what the tasks found of the gradients that they share. */
static void add_shared(const Work *work) {
    int64_t width = 2 * work->job->rows * work->job->columns + 1;
    memset(work->job->shared, 0, width * sizeof(double));
    for (int64_t task = 0; task < work->tasks; task++)
        for (int64_t k = 0; k < width; k++) work->job->shared[k] += work->partial[task * width + k];
}

/* Gradients of all tensors. Returns 0, or 1 if there was not enough memory. */
int paircaps_gradients(const Job *job) {
    int64_t K = job->rows * job->columns, J = job->parents;
    Work work = {.job = job, .vectors = (job->batch + LANES - 1) / LANES, .run = backward_for(job)};
    int64_t groups = (job->children + BACKWARD_CHILDREN - 1) / BACKWARD_CHILDREN;
    work.tasks = groups < BACKWARD_TASKS ? groups : BACKWARD_TASKS;
    if (groups < 8) work.tasks = job->children < 8 ? job->children : 8; /* few children: one or two a task */
    int64_t size = J * work.vectors * K;
    work.slope = memory(&work, 2 * size * sizeof(vec));
    work.partial = work.slope ? calloc(work.tasks * (2 * K + 1) + 1, sizeof(double)) : NULL;
    if (work.partial) {
        work.curve = work.slope + size;
        all_to_lanes(&work, job->grad_total, work.slope);
        all_to_lanes(&work, job->grad_squares, work.curve);
        for (int64_t k = 0; k < size; k++) work.curve[k] = work.curve[k] * SPLAT(2.0f);
        run_tasks(&work);
        add_shared(&work);
    } else work.failed = 1;
    free(work.partial);
    free(work.slope);
    return work.failed;
}

/* The sums of votes that are coupled to their parents. Returns 0, or 1 if there was not enough memory. */
int paircaps_coupled(const Job *job) {
    Work work = {.job = job, .vectors = (job->batch + LANES - 1) / LANES, .run = coupled_for(job)};
    work.tasks = (work.vectors + COUPLED_VECTORS - 1) / COUPLED_VECTORS;
    work.curve = memory(&work, job->parents * work.vectors * job->rows * job->columns * sizeof(vec));
    if (!work.curve) return 1;
    all_to_lanes(&work, job->agreed, work.curve);
    run_tasks(&work);
    free(work.curve);
    return work.failed;
}

/* Their gradients. Returns 0, or 1 if there was not enough memory. */
int paircaps_coupled_gradients(const Job *job) {
    int64_t J = job->parents, K = job->rows * job->columns;
    Work work = {.job = job, .vectors = (job->batch + LANES - 1) / LANES, .run = uncouple_for(job)};
    int64_t size = J * work.vectors * K, most = COUPLED_MEMORY / (size * (int64_t)sizeof(vec) + 1);
    work.tasks = most < 2 ? 2 : most > COUPLED_TASKS ? COUPLED_TASKS : most; /* a gradient of V each */
    work.slope = memory(&work, (2 + work.tasks) * size * sizeof(vec));
    work.partial = work.slope ? calloc(work.tasks * (2 * K + 1) + 1, sizeof(double)) : NULL;
    if (work.partial) {
        work.curve = work.slope + size, work.of_agreed = work.curve + size;
        all_to_lanes(&work, job->grad_coupled, work.slope);
        all_to_lanes(&work, job->agreed, work.curve);
        run_tasks(&work);
        add_shared(&work);
        for (int64_t task = 1; task < work.tasks; task++)
            for (int64_t k = 0; k < size; k++) work.of_agreed[k] += work.of_agreed[task * size + k];
        for (int64_t j = 0; j < J; j++)
            for (int64_t n = 0; n < work.vectors; n++) {
                int64_t b = n * LANES, images = job->batch - b < LANES ? job->batch - b : LANES;
                const vec *from = work.of_agreed + (j * work.vectors + n) * K;
                from_lanes(from, images, K, job->grad_agreed + (b * J + j) * K, J * K);
            }
    } else work.failed = 1;
    free(work.partial);
    free(work.slope);
    return work.failed;
}

/* Lanes of this build: what the library was compiled for. */
int paircaps_lanes(void) { return LANES; }
