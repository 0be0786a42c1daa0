"""The rules by which a router chooses experts, and the sizes of its tables, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.errors import InputError

SOFTMAX, SIGMOID = "softmax", "sigmoid"
SCORES = (SOFTMAX, SIGMOID)
_LARGEST = 2**31 - 1
"""The largest number of slots and rows, which are counted in i32."""


@dataclass(frozen=True)
class Rule:
    """A rule by which experts are chosen and weighted.

    Attributes:
        top_k: Experts of a token.
        score: What weights are made of: SOFTMAX over all experts' logits, or SIGMOID of each.
        renormalise: Weights are divided by their sum, so that they add up to `scale`. A softmax over the chosen logits
            alone is the same number.
        scale: Weights are multiplied by it, last.
        groups: Experts come in so many groups of equal size; only those of the best `kept_groups` can be chosen. A
            group's worth is the sum of its two best scores (with bias).
        kept_groups: Of `groups`.
    """

    top_k: int
    score: str = SOFTMAX
    renormalise: bool = True
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1

    def check(self, experts: int) -> None:
        """Raises InputError for a rule that cannot choose among `experts`."""
        if self.score not in SCORES:
            raise InputError(f"score '{self.score}': expected {' or '.join(SCORES)}")
        if not 1 <= self.top_k <= experts:
            raise InputError(f"top_k of {self.top_k} with {experts} experts: expected 1 to {experts}")
        if not 1 <= self.kept_groups <= self.groups or experts % self.groups:
            raise InputError(
                f"{self.kept_groups} of {self.groups} groups of {experts} experts: expected groups of equal size, and "
                f"at least one of them kept"
            )
        if self.groups > 1 and self.score != SIGMOID:
            raise InputError(f"groups with {self.score} scores: expected {SIGMOID}, as DeepSeek V3 has them")
        size = experts // self.groups
        if self.groups > 1 and size < 2:
            raise InputError(f"{self.groups} groups of {experts} experts: expected two experts or more in a group")
        if self.top_k > size * self.kept_groups:
            raise InputError(f"top_k of {self.top_k}, but {self.kept_groups} groups have {size * self.kept_groups}")


def gpt_oss(top_k: int = 4) -> Rule:
    """Returns GPT-OSS's rule: softmax over the chosen logits, which include the router's bias already."""
    return Rule(top_k)


def qwen3(top_k: int = 8, renormalise: bool = True) -> Rule:
    """Returns Qwen3's rule: softmax over all experts, then the best, whose weights add up to one (`norm_topk_prob`)."""
    return Rule(top_k, renormalise=renormalise)


def deepseek_v3(top_k: int = 8, groups: int = 8, kept_groups: int = 4, scale: float = 2.5) -> Rule:
    """Returns DeepSeek-V3's rule: sigmoids, a bias for the choice alone, groups, a factor. Kimi K2 is the same with one
    group and 2.827."""
    return Rule(top_k, SIGMOID, scale=scale, groups=groups, kept_groups=kept_groups)


@dataclass(frozen=True)
class Extent:
    """The static sizes of a routed layer: `tokens`, each with `top_k` slots, `experts`, rows of a block."""

    tokens: int
    experts: int
    top_k: int
    block_m: int

    def check(self) -> None:
        """Raises InputError for sizes that are not positive, or beyond what i32 counts."""
        if min(self.tokens, self.experts, self.top_k, self.block_m) < 1:
            raise InputError(f"{self}: expected sizes of 1 and more")
        if self.rows + self.slots > _LARGEST or self.slots + self.experts > _LARGEST:
            raise InputError(f"{self}: expected fewer than 2^31 rows")

    @property
    def slots(self) -> int:
        """The number of pairs of a token and one of its experts: slot `token · top_k + j` is its j-th."""
        return self.tokens * self.top_k

    @property
    def blocks(self) -> int:
        """The largest number of blocks of `block_m` rows for any choice: every expert wastes block_m - 1 rows."""
        return (self.slots + min(self.experts, self.slots) * (self.block_m - 1)) // self.block_m

    @property
    def rows(self) -> int:
        """The number of rows of all blocks."""
        return self.blocks * self.block_m
