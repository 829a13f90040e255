"""The paper's algorithms as loops over numbers, for one image. Nothing here comes from the library.

Votes are nested lists [i][j][k] of Python floats, which are 64 bits wide; activations are lists [i].
Each function returns (s, pose, activation) as nested lists [j][k], [j][k], [j].
"""

import math


def squash(x):
    square = sum(value * value for value in x)
    if square == 0:
        return [0.0 for _ in x]
    length = math.sqrt(square)
    return [square / (1 + square) * value / length for value in x]  # E9


def squash_exponential(x):
    length = math.sqrt(sum(value * value for value in x))
    return [(1 - math.exp(-length)) * value / length if length else 0.0 for value in x]


def softmax(logits):
    peak = max(logits)
    weights = [math.exp(value - peak) for value in logits]
    return [weight / sum(weights) for weight in weights]


def pairwise_agreement(votes):
    """E13, the double sum itself: every pair of children, once."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    s = [[0.0] * K for _ in range(J)]
    for j in range(J):
        for f in range(K):
            for i1 in range(I):
                for i2 in range(i1 + 1, I):
                    s[j][f] += votes[i1][j][f] * votes[i2][j][f] / I  # E5, left side
    return s


def fm_agreement(
    votes, weights=None, normalize=True, halve=True, activation="sum", softness=0.0, linear=0.0, scale=None
):
    """Algorithm 1; options are those of the published runs, weights (E14), softness (E15), a linear part (E16), a
    scale of the mean agreement (E17)."""
    if normalize:
        votes = [
            [[value / math.sqrt(sum(v * v for v in vote) + softness) for value in vote] for vote in child]
            for child in votes
        ]  # line 1
    if weights is not None:
        votes = [[[x * value for value in vote] for vote in child] for x, child in zip(weights, votes, strict=True)]
    s = pairwise_agreement(votes)  # line 2
    if weights is not None:
        s = [[value * len(votes) / sum(weights) for value in parent] for parent in s]
    if not halve:
        s = [[2 * value for value in parent] for parent in s]
    if scale is not None:
        s = [[value * scale / (len(votes) if weights is None else sum(weights)) for value in parent] for parent in s]
    for child in votes:
        s = [[a + linear * v for a, v in zip(*pair, strict=True)] for pair in zip(s, child, strict=True)]
    pose = [[value / math.sqrt(sum(v * v for v in parent)) for value in parent] for parent in s]  # line 3
    if activation == "squash":
        return s, pose, [math.sqrt(sum(value * value for value in squash(parent))) for parent in s]
    return s, pose, [sum(parent) for parent in s]  # line 4


def fm_activation_gradient(unit_votes):
    """E12: ∂a_j / ∂û_{j|i} for votes of length one."""
    I, J, K = len(unit_votes), len(unit_votes[0]), len(unit_votes[0][0])
    gradient = [[[0.0] * K for _ in range(J)] for _ in range(I)]
    for i in range(I):
        for j in range(J):
            for f in range(K):
                total = sum(unit_votes[n][j][f] for n in range(I))
                gradient[i][j][f] = (total - unit_votes[i][j][f]) / I
    return gradient


def dynamic_routing(votes, iterations, none_of_the_above=False):
    """Procedure 1 of Sabour, Frosst and Hinton, with the unused last update left in; and a category of logit zero."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    b = [[0.0] * J for _ in range(I)]
    v = []
    for _ in range(iterations):
        c = [softmax(b[i] + [0.0] * none_of_the_above) for i in range(I)]  # over parents
        s = [[sum(c[i][j] * votes[i][j][f] for i in range(I)) for f in range(K)] for j in range(J)]
        v = [squash(s[j]) for j in range(J)]
        for i in range(I):
            for j in range(J):
                b[i][j] += sum(votes[i][j][f] * v[j][f] for f in range(K))
    return v, v, [math.sqrt(sum(value * value for value in parent)) for parent in v]


def em_routing(votes, child_activation, beta_u, beta_a, iterations, eps=1e-9):
    """EM routing as the paper's comparison runs define it."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    R = [[1 / J] * J for _ in range(I)]
    mu, a = [[0.0] * K for _ in range(J)], [0.0] * J
    for t in range(1, iterations + 1):
        log_p = [[0.0] * J for _ in range(I)]
        for j in range(J):
            assigned = [R[i][j] * child_activation[i] for i in range(I)]
            S = sum(assigned)
            cost = 0.0
            for h in range(K):
                mean = sum(assigned[i] * votes[i][j][h] for i in range(I)) / (S + eps)
                variance = sum(assigned[i] * (votes[i][j][h] - mean) ** 2 for i in range(I)) / (S + eps) + eps
                cost += (beta_u[j] + 0.5 * math.log(variance)) * S * (100 * J / I)
                mu[j][h] = mean
                for i in range(I):
                    log_p[i][j] -= (votes[i][j][h] - mean) ** 2 / (2 * variance)
                    log_p[i][j] -= 0.5 * math.log(2 * math.pi * variance)
            temperature = 0.01 * (1 - 0.95**t)
            a[j] = 1 / (1 + math.exp(-temperature * (beta_a[j] - cost)))
        if t < iterations:
            for i in range(I):
                R[i] = softmax([math.log(a[j] + eps) + log_p[i][j] for j in range(J)])
    return mu, mu, a


def efficient_routing(votes, prior=None):
    """Self-attention routing of Efficient-CapsNet; a prior is a list [i][j], zero without one."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    c = []
    for i in range(I):
        logits = [sum(votes[i][j][f] * votes[k][j][f] for k in range(I) for f in range(K)) for j in range(J)]
        c.append(softmax([logit / math.sqrt(K) for logit in logits]))  # over parents
    if prior is not None:
        c = [[c[i][j] + prior[i][j] for j in range(J)] for i in range(I)]
    s = [[sum(c[i][j] * votes[i][j][f] for i in range(I)) for f in range(K)] for j in range(J)]
    v = [squash_exponential(parent) for parent in s]
    return v, v, [math.sqrt(sum(value * value for value in parent)) for parent in v]


def self_routing(votes, child_activation, children, weight, bias):
    """Self-routing: R is a list [i][j][d], b a list [i][j]."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    c = []
    for i in range(I):
        rows = zip(weight[i], bias[i], strict=True)
        logits = [sum(r * u for r, u in zip(row, children[i], strict=True)) + b for row, b in rows]
        c.append(softmax(logits))  # over parents
    given = [[c[i][j] * child_activation[i] for j in range(J)] for i in range(I)]
    heard = [sum(given[i][j] for i in range(I)) for j in range(J)]
    pose = [[sum(given[i][j] * votes[i][j][f] for i in range(I)) / heard[j] for f in range(K)] for j in range(J)]
    return pose, pose, [total / sum(child_activation) for total in heard]


def mean_of_votes(votes):
    """The average of the votes, squashed."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    v = [squash([sum(votes[i][j][f] for i in range(I)) / I for f in range(K)]) for j in range(J)]
    return v, v, [math.sqrt(sum(value * value for value in parent)) for parent in v]


def sum_of_votes(votes):
    """The sum of the votes, and its length."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    s = [[sum(votes[i][j][f] for i in range(I)) for f in range(K)] for j in range(J)]
    return s, s, [math.sqrt(sum(value * value for value in parent)) for parent in s]


def margin_loss(activation, present):
    """E10, the value of each class."""
    return [
        T * max(0, 0.9 - a) ** 2 + 0.5 * (1 - T) * max(0, a - 0.1) ** 2
        for a, T in zip(activation, present, strict=True)
    ]


def matrix_vote(u, weight):
    """Algorithm 2, lines 1 to 3, for one child and one parent; weight is a list of rows."""
    side = math.isqrt(len(u))
    rows = [u[side * r : side * (r + 1)] for r in range(side)]
    return [sum(rows[r][q] * weight[q][c] for q in range(side)) for r in range(side) for c in range(side)]


def vector_vote(u, weight):
    """E1 for one child and one parent; weight is a list over input dimensions."""
    return [sum(u[q] * weight[q][f] for q in range(len(u))) for f in range(len(weight[0]))]


def heinsen_routing(votes, child_activation, beta_use, beta_ign, iterations, eps=1e-5):
    """Heinsen 2019, with β_use and β_ign one number for each parent, and f the activation of a child."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    f = child_activation
    R = [[1 / J] * J for _ in range(I)]
    mu, a = [[0.0] * K for _ in range(J)], [0.0] * J
    for t in range(1, iterations + 1):
        log_p = [[0.0] * J for _ in range(I)]
        for j in range(J):
            used = [f[i] * R[i][j] for i in range(I)]
            a[j] = sum(beta_use[j] * used[i] - beta_ign[j] * (f[i] - used[i]) for i in range(I))
            for h in range(K):
                mean = sum(used[i] * votes[i][j][h] for i in range(I)) / sum(used)
                variance = sum(used[i] * (votes[i][j][h] - mean) ** 2 for i in range(I)) / sum(used) + eps
                mu[j][h] = mean
                for i in range(I):
                    log_p[i][j] -= (votes[i][j][h] - mean) ** 2 / (2 * variance) + 0.5 * math.log(variance)
        if t < iterations:
            for i in range(I):
                R[i] = softmax([-math.log1p(math.exp(-a[j])) + log_p[i][j] for j in range(J)])
    return mu, mu, a


def digamma(x):
    """ψ(x), by its recurrence to where three terms of its series are exact to 16 digits."""
    below = 0.0
    while x < 1000:
        below += 1 / x
        x += 1
    return math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - below


def vb_routing(votes, child_activation, iterations):
    """Variational Bayes routing of Ribeiro et al. 2020 with diagonal precisions, before its batch norm."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    R = [[1 / J] * J for _ in range(I)]
    m, a = [[0.0] * K for _ in range(J)], [0.0] * J
    for t in range(1, iterations + 1):
        r = [[R[i][j] * child_activation[i] for j in range(J)] for i in range(I)]
        N = [sum(r[i][j] for i in range(I)) for j in range(J)]
        log_R = [[0.0] * J for _ in range(I)]
        for j in range(J):
            kappa, nu = 1 + N[j], K + 1 + N[j]
            P = [0.0] * K
            for k in range(K):
                mu = sum(r[i][j] * votes[i][j][k] for i in range(I)) / N[j]
                m[j][k] = N[j] * mu / kappa
                P[k] = 1 + sum(r[i][j] * (votes[i][j][k] - mu) ** 2 for i in range(I)) + N[j] / kappa * mu**2
            log_pi = digamma(1 + N[j]) - digamma(sum(1 + n for n in N))
            L = sum(digamma((nu - k) / 2) for k in range(K)) + K * math.log(2) - sum(math.log(p) for p in P)
            a[j] = -math.exp(log_pi) * (K / 2 * math.log(2 * math.pi * math.e) - L / 2)
            for i in range(I):
                distance = sum((votes[i][j][k] - m[j][k]) ** 2 / P[k] for k in range(K))
                log_R[i][j] = log_pi + L / 2 - (K / kappa + nu * distance) / 2
        if t < iterations:
            R = [softmax(log_R[i]) for i in range(I)]
    return m, m, a


def layer_norm(x, gain, shift, eps=1e-5):
    mean = sum(x) / len(x)
    spread = math.sqrt(sum((value - mean) ** 2 for value in x) / len(x) + eps)
    return [g * (value - mean) / spread + h for value, g, h in zip(x, gain, shift, strict=True)]


def attention_routing(votes, gain, shift, weight, bias, iterations):
    """Inverted dot-product attention of Tsai et al. 2020, one layer by itself."""
    I, J, K = len(votes), len(votes[0]), len(votes[0][0])
    r = [[1 / J] * J for _ in range(I)]
    p = []
    for _ in range(iterations):
        s = [[sum(r[i][j] * votes[i][j][k] for i in range(I)) for k in range(K)] for j in range(J)]
        p = [layer_norm(s[j], gain, shift) for j in range(J)]
        for i in range(I):
            scores = [sum(p[j][k] * votes[i][j][k] for k in range(K)) / math.sqrt(K) for j in range(J)]
            r[i] = softmax(scores)
    a = [sum(weight[k] * p[j][k] for k in range(K)) + bias for j in range(J)]
    return p, p, a
