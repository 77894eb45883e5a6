kernel k(x: f32[T]) @warps(3) @stages(99) @what @mma(m16) @bind(T) @bind(Q, 3) {
}
