def reconstruct_indices_from_tree_mask(
    tree_mask,
    verified_seq_len,
    positions,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    batch_size,
    draft_token_num,
):
    """From ancestor masks (row i marks i's ancestors) to positions and first-child / next-sibling links."""
    n = draft_token_num
    masks = tree_mask.view(-1)[: batch_size * n * n].view(batch_size, n, n).bool()
    nxt, sib, ret, pos = (
        t.view(batch_size, n) for t in (retrive_next_token, retrive_next_sibling, retrive_index, positions)
    )
    for b in range(batch_size):
        parent = []
        for i in range(n):
            above = masks[b, i, :i].nonzero().view(-1).tolist()
            pos[b, i] = len(above) + int(verified_seq_len[b])
            ret[b, i] = b * n + i
            parent.append(above[-1] if above else -1)
        for i in range(n):
            nxt[b, i] = next((k for k in range(i + 1, n) if bool(masks[b, k, i])), -1)
            sib[b, i] = next((k for k in range(i + 1, n) if parent[k] == parent[i]), -1) if parent[i] >= 0 else -1
