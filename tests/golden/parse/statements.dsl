kernel k(x: f32[T], y: out f32[T]) {
    let n: i32 = T*2 ; let m = n
    var g, u : f32[r]=0 @dist(a)
    parallel (e,r) in tiles @tile( 128 ),
             c in tile(0,I)@tile(64) @exact,
             b in each(B)
    {
      for k in tile(H) { g+=1; u -= 2 ; g *= 3; y[c,k+1] += g }
      if n==3
      { y[c] = 1 }
      else if n < 4 { y[ c ] = 2 } else { copy(a[s],
           x[t, k]) @dist(copy)
      }
      at k = tile(H) , i*64 @tile(64) { commit() }
      role p(0,4) { barrier( ) }
      shared s0:bf16[4][128,64] @swizzle(3) @offset(0)
      shared = at + role + layout + type // words that only their place makes keywords
    }
}
