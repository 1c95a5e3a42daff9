"""Pure-torch stand-in for SGLang's compiled CPU kernel library (`sgl_kernel`).

The published `sglang-kernel` is a CUDA build; there is no CPU wheel.
SGLang >= 0.5.2x with SGLANG_USE_CPU_ENGINE=1 imports the
functions below at module level. They are slow, but follow the same contracts, so the
server's scheduling, logging, HTTP interface and speculative-decoding statistics are
SGLang's own.

`convert_weight_packed` is left undefined on purpose: SGLang takes its absence as "no
AMX kernels" and uses plain torch for the layers.
"""

import ctypes
import os

import torch

__version__ = "0.0.0+purepython"


# ---------------------------------------------------------------- KV bookkeeping
def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    pos = 0
    for row, start, end in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=False):
        n = end - start
        req_to_token[row, start:end] = out_cache_loc[pos : pos + n].to(req_to_token.dtype)
        pos += n


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    pos = 0
    for row, start, end in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=False):
        n = end - start
        out_cache_loc[pos : pos + n] = req_to_token[row, start:end].to(out_cache_loc.dtype)
        pos += n


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, num_steps
):
    n = topk * num_steps
    for i, (row, start) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        out_cache_loc[i * n : (i + 1) * n] = req_to_token[row, start : start + n].to(out_cache_loc.dtype)


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    src, tgt = src_loc.tolist(), tgt_loc.tolist()
    for base, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=False):
        rows = [ctypes.string_at(base + s * stride, stride) for s in src]
        for t, row in zip(tgt, rows, strict=False):
            ctypes.memmove(base + t * stride, row, stride)


# ------------------------------------------------------------ speculative decoding
def build_draft_decode_metadata_cpu(req_to_token, req_pool_indices, seq_lens, topk, num_steps, pool_len):
    out = torch.zeros((seq_lens.numel() * topk, pool_len), dtype=req_to_token.dtype)
    for b, (row, n) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        for k in range(topk):
            out[b * topk + k, :n] = req_to_token[row, :n]
            first = n + k * num_steps
            chunk = req_to_token[row, first : first + num_steps]
            out[b * topk + k, n : n + chunk.numel()] = chunk
    return out


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, accept_stride):
    rows = torch.arange(accept_lens.numel())
    bonus_tokens.copy_(accept_tokens.view(-1)[rows * accept_stride + accept_lens.long() - 1].to(bonus_tokens.dtype))


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc, *_):
    kept = accept_index.view(-1)
    kept = kept[kept > -1].long()
    accept_out_cache_loc[: kept.numel()] = out_cache_loc[kept]


def rotate_input_ids_cpu(input_ids, extend_start_loc, extend_seq_lens, topk_index, select_index=None):
    topk_index = topk_index.view(-1)
    for i, (start, n) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=False)):
        if n <= 0:
            continue
        input_ids[start : start + n - 1] = input_ids[start + 1 : start + n].clone()
        last = start + n - 1 if select_index is None else int(select_index[i])
        input_ids[last] = topk_index[i]


def build_tree_kernel_efficient_cpu(
    parent_list,
    selected_index,
    verified_seq_len,
    tree_mask,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    topk,
    depth,
    draft_token_num,
    tree_mask_mode,
):
    n = draft_token_num
    if int(tree_mask_mode) == 2:
        raise NotImplementedError("bit-packed tree mask")
    offset = 0
    for b, seq_len in enumerate(verified_seq_len.tolist()):
        picked = selected_index[b].tolist()
        parents = parent_list[b].tolist() if parent_list.dim() > 1 else parent_list.tolist()
        where = {}
        for slot, idx in enumerate(picked):
            where.setdefault(idx, slot + 1)
        # parent node (0 = the verified token) of every drafted node 1..n-1; None = detached
        parent = [None] * n
        for i in range(1, n):
            group = picked[i - 1] // topk
            parent[i] = 0 if group == 0 else where.get(parents[group])
        width = seq_len + n if int(tree_mask_mode) == 0 else n
        cells = tree_mask[offset : offset + width * n].view(n, width)
        offset += width * n
        block = cells[:, width - n :]
        block.fill_(0)
        block[:, 0] = 1
        for i in range(n):
            node, level = i, 0
            while node:
                block[i, node] = 1
                level += 1
                if parent[node] is None or level >= depth:
                    break
                node = parent[node]
            positions[b * n + i] = seq_len + level
        retrieve_index[b] = torch.arange(b * n, (b + 1) * n)
        for i in range(n - 1, 0, -1):
            if parent[i] is None:
                continue
            first = int(retrieve_next_token[b, parent[i]])
            retrieve_next_token[b, parent[i]] = i
            if first != -1:
                retrieve_next_sibling[b, i] = first


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    target = target_predict.reshape(-1)
    steps = accept_index.shape[1]
    for b in range(candidates.shape[0]):
        at = int(retrive_index[b, 0])
        accept_index[b, 0] = at
        node, count = 0, 0
        for _ in range(1, steps):
            want = int(target[at])
            node = int(retrive_next_token[b, node])
            while node != -1 and int(candidates[b, node]) != want:
                node = int(retrive_next_sibling[b, node])
            if node == -1:
                break
            predicts[at] = want
            count += 1
            at = int(retrive_index[b, node])
            accept_index[b, count] = at
        accept_token_num[b] = count
        predicts[at] = target[at]


# ------------------------------------------------------------------- torch.ops part
def _attend(q, k, v, scale, cap, mask, sinks=None):
    """q [T,Hq,D], k/v [S,Hkv,D], mask [T,S] bool -> [T,Hq,Dv]."""
    q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k.to(q.dtype), v.to(q.dtype)))
    if not cap and sinks is None:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
        return out[0].transpose(0, 1)
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1).float() for t in (k, v))
    scores = (q.float() @ k.transpose(-1, -2)) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        extra = sinks.float().view(1, -1, 1, 1).expand(-1, -1, scores.shape[2], 1)
        scores = torch.cat([scores, extra], -1)
    probs = torch.softmax(scores, -1)[..., : k.shape[2]]
    return (probs @ v)[0].transpose(0, 1)


def _decode_attention(
    query,
    k_buffer,
    v_buffer,
    k_scale,
    v_scale,
    output,
    key,
    value,
    loc,
    attn_logits,
    req_to_token,
    req_pool_indices,
    seq_lens,
    sm_scale,
    logit_cap,
    is_cross_attn,
    sliding_window,
    encoder_lens,
    sinks,
):
    if key is not None and value is not None:
        k_buffer[loc.long()] = key.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc.long()] = value.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for b, (row, n) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        slots = req_to_token[row, :n].long()
        if sliding_window and sliding_window > 0:
            slots = slots[-sliding_window:]
        mask = torch.ones((1, slots.numel()), dtype=torch.bool)
        output[b : b + 1] = _attend(
            query[b : b + 1], k_buffer[slots], v_buffer[slots], sm_scale, logit_cap, mask, sinks
        ).to(output.dtype)


def _extend_attention(
    q,
    k,
    v,
    o,
    k_buffer,
    v_buffer,
    k_scale,
    v_scale,
    req_to_token,
    req_pool_indices,
    seq_lens,
    extend_seq_lens,
    extend_start_loc,
    max_len_extend,
    sm_scale,
    logit_cap,
    is_cross_attn,
    sliding_window,
    encoder_lens,
    sinks,
    tree_mask,
    is_causal,
):
    mask_at = 0
    for row, n, m, start in zip(
        req_pool_indices.tolist(), seq_lens.tolist(), extend_seq_lens.tolist(), extend_start_loc.tolist(), strict=False
    ):
        prefix = n - m
        slots = req_to_token[row, :n].long()
        mask = torch.ones((m, n), dtype=torch.bool)
        if tree_mask is not None:
            mask[:, prefix:] = tree_mask[mask_at : mask_at + m * m].view(m, m).bool()
            mask_at += m * m
        elif is_causal:
            mask[:, prefix:] = torch.ones((m, m), dtype=torch.bool).tril()
        if sliding_window and sliding_window > 0:
            qpos = torch.arange(prefix, n).view(-1, 1)
            mask &= torch.arange(n).view(1, -1) > qpos - sliding_window
        if m:
            o[start : start + m] = _attend(
                q[start : start + m], k_buffer[slots], v_buffer[slots], sm_scale, logit_cap, mask, sinks
            ).to(o.dtype)


_lib = torch.library.Library("sgl_kernel", "DEF")
_lib.define(
    "decode_attention_cpu(Tensor query, Tensor(a!) k_buffer, Tensor(b!) v_buffer, float k_scale, float v_scale, "
    "Tensor(c!) output, Tensor? key, Tensor? value, Tensor loc, Tensor attn_logits, Tensor req_to_token, "
    "Tensor req_pool_indices, Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn, "
    "int sliding_window, Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_lib.impl("decode_attention_cpu", _decode_attention, "CPU")
_lib.define(
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) o, Tensor k_buffer, Tensor v_buffer, "
    "float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap, "
    "bool is_cross_attn, int sliding_window, Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, bool is_causal) -> ()"
)
_lib.impl("extend_attention_cpu", _extend_attention, "CPU")


def _murmur_hash32(seed, positions, col_indices):
    m32 = 0xFFFFFFFF

    def mix(h, k):
        k = (k * 0xCC9E2D51) & m32
        k = ((k << 15) | (k >> 17)) & m32
        k = (k * 0x1B873593) & m32
        h = h ^ k
        h = ((h << 13) | (h >> 19)) & m32
        return (h * 5 + 0xE6546B64) & m32

    s = seed.to(torch.int64).view(-1, 1)
    h = torch.zeros_like(s)
    h = mix(h, s & m32)
    h = mix(h, (s >> 32) & m32)
    h = mix(h, positions.to(torch.int64).view(-1, 1) & m32)
    h = mix(h, col_indices.to(torch.int64).view(1, -1) & m32)
    h = h ^ 16
    h = h ^ (h >> 16)
    h = (h * 0x85EBCA6B) & m32
    h = h ^ (h >> 13)
    h = (h * 0xC2B2AE35) & m32
    return (h ^ (h >> 16)).to(torch.uint32)


_lib.define("murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor col_indices) -> Tensor")
_lib.impl("murmur_hash32_cpu", _murmur_hash32, "CPU")


# ------------------------------------------------- optional: SGLang's CPU-graph capture
if os.environ.get("SGL_KERNEL_STUB_GRAPH"):
    # --enable-torch-compile registers fake versions of every CPU op by name; skip the ones not defined above.
    _register_fake = torch.library.register_fake

    def _register_fake_if_defined(op, func=None, *args, **kwargs):
        if (
            isinstance(op, str)
            and op.startswith("sgl_kernel::")
            and not hasattr(torch.ops.sgl_kernel, op.split("::")[1])
        ):
            return (lambda f: f) if func is None else func
        return _register_fake(op, func, *args, **kwargs)

    torch.library.register_fake = _register_fake_if_defined
