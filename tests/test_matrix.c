// The simulator's matrix instructions against tables copied from the vendors' manuals, and against plain triple loops
// over operands that this file lays out itself.
#include "../runtime/sim/matrix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include <cmocka.h>

// ---- published tables -------------------------------------------------------------------------------------------

// clang-format off
// PTX ISA, the figures of "Matrix Fragments for mma.m16n8k16 with floating point type" and "... mma.m16n8k8": for
// every cell of the matrix, row by row, the thread and the number of its element.
static const char mma_k16_a[] =
    "T0:0 T0:1 T1:0 T1:1 T2:0 T2:1 T3:0 T3:1 T0:4 T0:5 T1:4 T1:5 T2:4 T2:5 T3:4 T3:5\n"
    "T4:0 T4:1 T5:0 T5:1 T6:0 T6:1 T7:0 T7:1 T4:4 T4:5 T5:4 T5:5 T6:4 T6:5 T7:4 T7:5\n"
    "T8:0 T8:1 T9:0 T9:1 T10:0 T10:1 T11:0 T11:1 T8:4 T8:5 T9:4 T9:5 T10:4 T10:5 T11:4 T11:5\n"
    "T12:0 T12:1 T13:0 T13:1 T14:0 T14:1 T15:0 T15:1 T12:4 T12:5 T13:4 T13:5 T14:4 T14:5 T15:4 T15:5\n"
    "T16:0 T16:1 T17:0 T17:1 T18:0 T18:1 T19:0 T19:1 T16:4 T16:5 T17:4 T17:5 T18:4 T18:5 T19:4 T19:5\n"
    "T20:0 T20:1 T21:0 T21:1 T22:0 T22:1 T23:0 T23:1 T20:4 T20:5 T21:4 T21:5 T22:4 T22:5 T23:4 T23:5\n"
    "T24:0 T24:1 T25:0 T25:1 T26:0 T26:1 T27:0 T27:1 T24:4 T24:5 T25:4 T25:5 T26:4 T26:5 T27:4 T27:5\n"
    "T28:0 T28:1 T29:0 T29:1 T30:0 T30:1 T31:0 T31:1 T28:4 T28:5 T29:4 T29:5 T30:4 T30:5 T31:4 T31:5\n"
    "T0:2 T0:3 T1:2 T1:3 T2:2 T2:3 T3:2 T3:3 T0:6 T0:7 T1:6 T1:7 T2:6 T2:7 T3:6 T3:7\n"
    "T4:2 T4:3 T5:2 T5:3 T6:2 T6:3 T7:2 T7:3 T4:6 T4:7 T5:6 T5:7 T6:6 T6:7 T7:6 T7:7\n"
    "T8:2 T8:3 T9:2 T9:3 T10:2 T10:3 T11:2 T11:3 T8:6 T8:7 T9:6 T9:7 T10:6 T10:7 T11:6 T11:7\n"
    "T12:2 T12:3 T13:2 T13:3 T14:2 T14:3 T15:2 T15:3 T12:6 T12:7 T13:6 T13:7 T14:6 T14:7 T15:6 T15:7\n"
    "T16:2 T16:3 T17:2 T17:3 T18:2 T18:3 T19:2 T19:3 T16:6 T16:7 T17:6 T17:7 T18:6 T18:7 T19:6 T19:7\n"
    "T20:2 T20:3 T21:2 T21:3 T22:2 T22:3 T23:2 T23:3 T20:6 T20:7 T21:6 T21:7 T22:6 T22:7 T23:6 T23:7\n"
    "T24:2 T24:3 T25:2 T25:3 T26:2 T26:3 T27:2 T27:3 T24:6 T24:7 T25:6 T25:7 T26:6 T26:7 T27:6 T27:7\n"
    "T28:2 T28:3 T29:2 T29:3 T30:2 T30:3 T31:2 T31:3 T28:6 T28:7 T29:6 T29:7 T30:6 T30:7 T31:6 T31:7\n";

static const char mma_k16_b[] =
    "T0:0 T4:0 T8:0 T12:0 T16:0 T20:0 T24:0 T28:0\n"
    "T0:1 T4:1 T8:1 T12:1 T16:1 T20:1 T24:1 T28:1\n"
    "T1:0 T5:0 T9:0 T13:0 T17:0 T21:0 T25:0 T29:0\n"
    "T1:1 T5:1 T9:1 T13:1 T17:1 T21:1 T25:1 T29:1\n"
    "T2:0 T6:0 T10:0 T14:0 T18:0 T22:0 T26:0 T30:0\n"
    "T2:1 T6:1 T10:1 T14:1 T18:1 T22:1 T26:1 T30:1\n"
    "T3:0 T7:0 T11:0 T15:0 T19:0 T23:0 T27:0 T31:0\n"
    "T3:1 T7:1 T11:1 T15:1 T19:1 T23:1 T27:1 T31:1\n"
    "T0:2 T4:2 T8:2 T12:2 T16:2 T20:2 T24:2 T28:2\n"
    "T0:3 T4:3 T8:3 T12:3 T16:3 T20:3 T24:3 T28:3\n"
    "T1:2 T5:2 T9:2 T13:2 T17:2 T21:2 T25:2 T29:2\n"
    "T1:3 T5:3 T9:3 T13:3 T17:3 T21:3 T25:3 T29:3\n"
    "T2:2 T6:2 T10:2 T14:2 T18:2 T22:2 T26:2 T30:2\n"
    "T2:3 T6:3 T10:3 T14:3 T18:3 T22:3 T26:3 T30:3\n"
    "T3:2 T7:2 T11:2 T15:2 T19:2 T23:2 T27:2 T31:2\n"
    "T3:3 T7:3 T11:3 T15:3 T19:3 T23:3 T27:3 T31:3\n";

static const char mma_k8_a[] =
    "T0:0 T0:1 T1:0 T1:1 T2:0 T2:1 T3:0 T3:1\n" "T4:0 T4:1 T5:0 T5:1 T6:0 T6:1 T7:0 T7:1\n"
    "T8:0 T8:1 T9:0 T9:1 T10:0 T10:1 T11:0 T11:1\n" "T12:0 T12:1 T13:0 T13:1 T14:0 T14:1 T15:0 T15:1\n"
    "T16:0 T16:1 T17:0 T17:1 T18:0 T18:1 T19:0 T19:1\n" "T20:0 T20:1 T21:0 T21:1 T22:0 T22:1 T23:0 T23:1\n"
    "T24:0 T24:1 T25:0 T25:1 T26:0 T26:1 T27:0 T27:1\n" "T28:0 T28:1 T29:0 T29:1 T30:0 T30:1 T31:0 T31:1\n"
    "T0:2 T0:3 T1:2 T1:3 T2:2 T2:3 T3:2 T3:3\n" "T4:2 T4:3 T5:2 T5:3 T6:2 T6:3 T7:2 T7:3\n"
    "T8:2 T8:3 T9:2 T9:3 T10:2 T10:3 T11:2 T11:3\n" "T12:2 T12:3 T13:2 T13:3 T14:2 T14:3 T15:2 T15:3\n"
    "T16:2 T16:3 T17:2 T17:3 T18:2 T18:3 T19:2 T19:3\n" "T20:2 T20:3 T21:2 T21:3 T22:2 T22:3 T23:2 T23:3\n"
    "T24:2 T24:3 T25:2 T25:3 T26:2 T26:3 T27:2 T27:3\n" "T28:2 T28:3 T29:2 T29:3 T30:2 T30:3 T31:2 T31:3\n";

static const char mma_k8_b[] =
    "T0:0 T4:0 T8:0 T12:0 T16:0 T20:0 T24:0 T28:0\n" "T0:1 T4:1 T8:1 T12:1 T16:1 T20:1 T24:1 T28:1\n"
    "T1:0 T5:0 T9:0 T13:0 T17:0 T21:0 T25:0 T29:0\n" "T1:1 T5:1 T9:1 T13:1 T17:1 T21:1 T25:1 T29:1\n"
    "T2:0 T6:0 T10:0 T14:0 T18:0 T22:0 T26:0 T30:0\n" "T2:1 T6:1 T10:1 T14:1 T18:1 T22:1 T26:1 T30:1\n"
    "T3:0 T7:0 T11:0 T15:0 T19:0 T23:0 T27:0 T31:0\n" "T3:1 T7:1 T11:1 T15:1 T19:1 T23:1 T27:1 T31:1\n";

static const char mma_d[] =
    "T0:0 T0:1 T1:0 T1:1 T2:0 T2:1 T3:0 T3:1\n" "T4:0 T4:1 T5:0 T5:1 T6:0 T6:1 T7:0 T7:1\n"
    "T8:0 T8:1 T9:0 T9:1 T10:0 T10:1 T11:0 T11:1\n" "T12:0 T12:1 T13:0 T13:1 T14:0 T14:1 T15:0 T15:1\n"
    "T16:0 T16:1 T17:0 T17:1 T18:0 T18:1 T19:0 T19:1\n" "T20:0 T20:1 T21:0 T21:1 T22:0 T22:1 T23:0 T23:1\n"
    "T24:0 T24:1 T25:0 T25:1 T26:0 T26:1 T27:0 T27:1\n" "T28:0 T28:1 T29:0 T29:1 T30:0 T30:1 T31:0 T31:1\n"
    "T0:2 T0:3 T1:2 T1:3 T2:2 T2:3 T3:2 T3:3\n" "T4:2 T4:3 T5:2 T5:3 T6:2 T6:3 T7:2 T7:3\n"
    "T8:2 T8:3 T9:2 T9:3 T10:2 T10:3 T11:2 T11:3\n" "T12:2 T12:3 T13:2 T13:3 T14:2 T14:3 T15:2 T15:3\n"
    "T16:2 T16:3 T17:2 T17:3 T18:2 T18:3 T19:2 T19:3\n" "T20:2 T20:3 T21:2 T21:3 T22:2 T22:3 T23:2 T23:3\n"
    "T24:2 T24:3 T25:2 T25:3 T26:2 T26:3 T27:2 T27:3\n" "T28:2 T28:3 T29:2 T29:3 T30:2 T30:3 T31:2 T31:3\n";

// AMD matrix instruction calculator (cdna3, --A-matrix, --B-matrix, --D-matrix), some lanes: lane: row,column of each
// item.
static const char mfma_32_k8_a[] =
    "0: 0,0 0,1 0,2 0,3\n" "1: 1,0 1,1 1,2 1,3\n"
    "5: 5,0 5,1 5,2 5,3\n" "15: 15,0 15,1 15,2 15,3\n"
    "16: 16,0 16,1 16,2 16,3\n" "17: 17,0 17,1 17,2 17,3\n"
    "31: 31,0 31,1 31,2 31,3\n" "32: 0,4 0,5 0,6 0,7\n"
    "33: 1,4 1,5 1,6 1,7\n" "47: 15,4 15,5 15,6 15,7\n"
    "48: 16,4 16,5 16,6 16,7\n" "63: 31,4 31,5 31,6 31,7\n";

static const char mfma_32_k8_b[] =
    "0: 0,0 1,0 2,0 3,0\n" "1: 0,1 1,1 2,1 3,1\n"
    "5: 0,5 1,5 2,5 3,5\n" "15: 0,15 1,15 2,15 3,15\n"
    "16: 0,16 1,16 2,16 3,16\n" "17: 0,17 1,17 2,17 3,17\n"
    "31: 0,31 1,31 2,31 3,31\n" "32: 4,0 5,0 6,0 7,0\n"
    "33: 4,1 5,1 6,1 7,1\n" "47: 4,15 5,15 6,15 7,15\n"
    "48: 4,16 5,16 6,16 7,16\n" "63: 4,31 5,31 6,31 7,31\n";

static const char mfma_32_d[] =
    "0: 0,0 1,0 2,0 3,0 8,0 9,0 10,0 11,0 16,0 17,0 18,0 19,0 24,0 25,0 26,0 27,0\n"
    "1: 0,1 1,1 2,1 3,1 8,1 9,1 10,1 11,1 16,1 17,1 18,1 19,1 24,1 25,1 26,1 27,1\n"
    "5: 0,5 1,5 2,5 3,5 8,5 9,5 10,5 11,5 16,5 17,5 18,5 19,5 24,5 25,5 26,5 27,5\n"
    "15: 0,15 1,15 2,15 3,15 8,15 9,15 10,15 11,15 16,15 17,15 18,15 19,15 24,15 25,15 26,15 27,15\n"
    "16: 0,16 1,16 2,16 3,16 8,16 9,16 10,16 11,16 16,16 17,16 18,16 19,16 24,16 25,16 26,16 27,16\n"
    "17: 0,17 1,17 2,17 3,17 8,17 9,17 10,17 11,17 16,17 17,17 18,17 19,17 24,17 25,17 26,17 27,17\n"
    "31: 0,31 1,31 2,31 3,31 8,31 9,31 10,31 11,31 16,31 17,31 18,31 19,31 24,31 25,31 26,31 27,31\n"
    "32: 4,0 5,0 6,0 7,0 12,0 13,0 14,0 15,0 20,0 21,0 22,0 23,0 28,0 29,0 30,0 31,0\n"
    "33: 4,1 5,1 6,1 7,1 12,1 13,1 14,1 15,1 20,1 21,1 22,1 23,1 28,1 29,1 30,1 31,1\n"
    "47: 4,15 5,15 6,15 7,15 12,15 13,15 14,15 15,15 20,15 21,15 22,15 23,15 28,15 29,15 30,15 31,15\n"
    "48: 4,16 5,16 6,16 7,16 12,16 13,16 14,16 15,16 20,16 21,16 22,16 23,16 28,16 29,16 30,16 31,16\n"
    "63: 4,31 5,31 6,31 7,31 12,31 13,31 14,31 15,31 20,31 21,31 22,31 23,31 28,31 29,31 30,31 31,31\n";

static const char mfma_16_k16_a[] =
    "0: 0,0 0,1 0,2 0,3\n" "1: 1,0 1,1 1,2 1,3\n"
    "5: 5,0 5,1 5,2 5,3\n" "15: 15,0 15,1 15,2 15,3\n"
    "16: 0,4 0,5 0,6 0,7\n" "17: 1,4 1,5 1,6 1,7\n"
    "31: 15,4 15,5 15,6 15,7\n" "32: 0,8 0,9 0,10 0,11\n"
    "33: 1,8 1,9 1,10 1,11\n" "47: 15,8 15,9 15,10 15,11\n"
    "48: 0,12 0,13 0,14 0,15\n" "63: 15,12 15,13 15,14 15,15\n";

static const char mfma_16_k16_b[] =
    "0: 0,0 1,0 2,0 3,0\n" "1: 0,1 1,1 2,1 3,1\n"
    "5: 0,5 1,5 2,5 3,5\n" "15: 0,15 1,15 2,15 3,15\n"
    "16: 4,0 5,0 6,0 7,0\n" "17: 4,1 5,1 6,1 7,1\n"
    "31: 4,15 5,15 6,15 7,15\n" "32: 8,0 9,0 10,0 11,0\n"
    "33: 8,1 9,1 10,1 11,1\n" "47: 8,15 9,15 10,15 11,15\n"
    "48: 12,0 13,0 14,0 15,0\n" "63: 12,15 13,15 14,15 15,15\n";

static const char mfma_16_d[] =
    "0: 0,0 1,0 2,0 3,0\n" "1: 0,1 1,1 2,1 3,1\n"
    "5: 0,5 1,5 2,5 3,5\n" "15: 0,15 1,15 2,15 3,15\n"
    "16: 4,0 5,0 6,0 7,0\n" "17: 4,1 5,1 6,1 7,1\n"
    "31: 4,15 5,15 6,15 7,15\n" "32: 8,0 9,0 10,0 11,0\n"
    "33: 8,1 9,1 10,1 11,1\n" "47: 8,15 9,15 10,15 11,15\n"
    "48: 12,0 13,0 14,0 15,0\n" "63: 12,15 13,15 14,15 15,15\n";

// CDNA4 ISA, matrix chapter: the input layout with K_L = 8 items a lane (the output layout is CDNA3's).
static const char mfma_32_k16_a[] =
    "0: 0,0 0,1 0,2 0,3 0,4 0,5 0,6 0,7\n"
    "1: 1,0 1,1 1,2 1,3 1,4 1,5 1,6 1,7\n"
    "5: 5,0 5,1 5,2 5,3 5,4 5,5 5,6 5,7\n"
    "15: 15,0 15,1 15,2 15,3 15,4 15,5 15,6 15,7\n"
    "16: 16,0 16,1 16,2 16,3 16,4 16,5 16,6 16,7\n"
    "31: 31,0 31,1 31,2 31,3 31,4 31,5 31,6 31,7\n"
    "32: 0,8 0,9 0,10 0,11 0,12 0,13 0,14 0,15\n"
    "33: 1,8 1,9 1,10 1,11 1,12 1,13 1,14 1,15\n"
    "47: 15,8 15,9 15,10 15,11 15,12 15,13 15,14 15,15\n"
    "48: 16,8 16,9 16,10 16,11 16,12 16,13 16,14 16,15\n"
    "63: 31,8 31,9 31,10 31,11 31,12 31,13 31,14 31,15\n";

static const char mfma_16_k32_a[] =
    "0: 0,0 0,1 0,2 0,3 0,4 0,5 0,6 0,7\n"
    "1: 1,0 1,1 1,2 1,3 1,4 1,5 1,6 1,7\n"
    "5: 5,0 5,1 5,2 5,3 5,4 5,5 5,6 5,7\n"
    "15: 15,0 15,1 15,2 15,3 15,4 15,5 15,6 15,7\n"
    "16: 0,8 0,9 0,10 0,11 0,12 0,13 0,14 0,15\n"
    "17: 1,8 1,9 1,10 1,11 1,12 1,13 1,14 1,15\n"
    "31: 15,8 15,9 15,10 15,11 15,12 15,13 15,14 15,15\n"
    "32: 0,16 0,17 0,18 0,19 0,20 0,21 0,22 0,23\n"
    "33: 1,16 1,17 1,18 1,19 1,20 1,21 1,22 1,23\n"
    "47: 15,16 15,17 15,18 15,19 15,20 15,21 15,22 15,23\n"
    "48: 0,24 0,25 0,26 0,27 0,28 0,29 0,30 0,31\n"
    "63: 15,24 15,25 15,26 15,27 15,28 15,29 15,30 15,31\n";

static const char mfma_32_k16_b[] =
    "0: 0,0 1,0 2,0 3,0 4,0 5,0 6,0 7,0\n"
    "1: 0,1 1,1 2,1 3,1 4,1 5,1 6,1 7,1\n"
    "5: 0,5 1,5 2,5 3,5 4,5 5,5 6,5 7,5\n"
    "15: 0,15 1,15 2,15 3,15 4,15 5,15 6,15 7,15\n"
    "16: 0,16 1,16 2,16 3,16 4,16 5,16 6,16 7,16\n"
    "31: 0,31 1,31 2,31 3,31 4,31 5,31 6,31 7,31\n"
    "32: 8,0 9,0 10,0 11,0 12,0 13,0 14,0 15,0\n"
    "33: 8,1 9,1 10,1 11,1 12,1 13,1 14,1 15,1\n"
    "47: 8,15 9,15 10,15 11,15 12,15 13,15 14,15 15,15\n"
    "48: 8,16 9,16 10,16 11,16 12,16 13,16 14,16 15,16\n"
    "63: 8,31 9,31 10,31 11,31 12,31 13,31 14,31 15,31\n";

static const char mfma_16_k32_b[] =
    "0: 0,0 1,0 2,0 3,0 4,0 5,0 6,0 7,0\n"
    "1: 0,1 1,1 2,1 3,1 4,1 5,1 6,1 7,1\n"
    "5: 0,5 1,5 2,5 3,5 4,5 5,5 6,5 7,5\n"
    "15: 0,15 1,15 2,15 3,15 4,15 5,15 6,15 7,15\n"
    "16: 8,0 9,0 10,0 11,0 12,0 13,0 14,0 15,0\n"
    "17: 8,1 9,1 10,1 11,1 12,1 13,1 14,1 15,1\n"
    "31: 8,15 9,15 10,15 11,15 12,15 13,15 14,15 15,15\n"
    "32: 16,0 17,0 18,0 19,0 20,0 21,0 22,0 23,0\n"
    "33: 16,1 17,1 18,1 19,1 20,1 21,1 22,1 23,1\n"
    "47: 16,15 17,15 18,15 19,15 20,15 21,15 22,15 23,15\n"
    "48: 24,0 25,0 26,0 27,0 28,0 29,0 30,0 31,0\n"
    "63: 24,15 25,15 26,15 27,15 28,15 29,15 30,15 31,15\n";

static const struct {
    const char *name, *a, *b, *d;
    bool grid; // PTX's form, else AMD's
} published[] = {
    { "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", mma_k16_a, mma_k16_b, mma_d, true },
    { "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", mma_k16_a, mma_k16_b, mma_d, true },
    { "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", mma_k8_a, mma_k8_b, mma_d, true },
    { "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", mma_k8_a, mma_k8_b, mma_d, true },
    { "llvm.amdgcn.mfma.f32.32x32x8bf16.1k", mfma_32_k8_a, mfma_32_k8_b, mfma_32_d, false },
    { "llvm.amdgcn.mfma.f32.32x32x8f16", mfma_32_k8_a, mfma_32_k8_b, mfma_32_d, false },
    { "llvm.amdgcn.mfma.f32.16x16x16bf16.1k", mfma_16_k16_a, mfma_16_k16_b, mfma_16_d, false },
    { "llvm.amdgcn.mfma.f32.16x16x16f16", mfma_16_k16_a, mfma_16_k16_b, mfma_16_d, false },
    { "llvm.amdgcn.mfma.f32.32x32x16.bf16", mfma_32_k16_a, mfma_32_k16_b, mfma_32_d, false },
    { "llvm.amdgcn.mfma.f32.32x32x16.f16", mfma_32_k16_a, mfma_32_k16_b, mfma_32_d, false },
    { "llvm.amdgcn.mfma.f32.16x16x32.bf16", mfma_16_k32_a, mfma_16_k32_b, mfma_16_d, false },
    { "llvm.amdgcn.mfma.f32.16x16x32.f16", mfma_16_k32_a, mfma_16_k32_b, mfma_16_d, false },
};
enum { PUBLISHED = sizeof published / sizeof *published };

// CUDA programming guide, "Tensor memory swizzle modes", and the PTX ISA's figures of the swizzling modes: eight lines
// of 128 bytes; where the 16-byte chunks 0 to 7 of a line lie in it.
static const char *const chunks_128[8] = { "01234567", "10325476", "23016745", "32107654",
                                           "45670123", "54761032", "67452301", "76543210" };
static const char *const chunks_64[8] = { "01234567", "10325476", "23016745", "32107654",
                                          "01234567", "10325476", "23016745", "32107654" };
static const char *const chunks_32[8] = { "01234567", "10325476", "01234567", "10325476",
                                          "01234567", "10325476", "01234567", "10325476" };
static const char *const chunks_0[8] = { "01234567", "01234567", "01234567", "01234567",
                                         "01234567", "01234567", "01234567", "01234567" };
// PTX ISA, figure of ldmatrix: the thread of each element of an 8 x 8 matrix.
static const int ldmatrix_thread[8][8] = {
    { 0, 0, 1, 1, 2, 2, 3, 3 },         { 4, 4, 5, 5, 6, 6, 7, 7 },
    { 8, 8, 9, 9, 10, 10, 11, 11 },     { 12, 12, 13, 13, 14, 14, 15, 15 },
    { 16, 16, 17, 17, 18, 18, 19, 19 }, { 20, 20, 21, 21, 22, 22, 23, 23 },
    { 24, 24, 25, 25, 26, 26, 27, 27 }, { 28, 28, 29, 29, 30, 30, 31, 31 },
};
// clang-format on

// ---- helpers ----------------------------------------------------------------------------------------------------

static uint32_t next_random(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15u;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static float float_of(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

// The value of 16 bits, from the definition of the formats.
static double value_of(enum matrix_type type, uint32_t half)
{
    int width = type == MATRIX_BF16 ? 7 : 10, bias = type == MATRIX_BF16 ? 127 : 15;
    int exponent = (int)(half & 0x7fff) >> width, fraction = (int)half & ((1 << width) - 1);
    double value;

    if (exponent == 2 * bias + 1)
        value = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias - width);
    else
        value = ldexp((1 << width) + fraction, exponent - bias - width);
    return half & 0x8000 ? -value : value;
}

// A small integer's 16 bits, |i| <= 8.
static uint32_t half_of(enum matrix_type type, int i)
{
    for (uint32_t h = 0; h < 0x10000; h += 0x20) {
        if (value_of(type, h) == i)
            return h;
    }
    fail_msg("no 16 bits for %d", i);
    return 0;
}

enum kind { SMALL, UNIT, WIDE }; // integers; near 1; so far apart that the order of the sum shows

static uint32_t random_half(enum matrix_type type, enum kind kind)
{
    static uint32_t small[2][9];
    uint32_t r = next_random();

    if (kind == SMALL) {
        int i = (int)(r % 9) - 4;

        if (!small[type][8]) {
            for (int v = -4; v <= 4; v++)
                small[type][v + 4] = half_of(type, v);
        }
        return small[type][i + 4];
    }
    if (kind == WIDE && type == MATRIX_BF16)
        return (r & 0x8000) | (r & 1 ? 0x6780 : 0x1780); // 2^80, 2^-80
    if (kind == WIDE)
        return (r & 0x8000) | (r & 1 ? 0x7800 : 0x0001); // 2^15, 2^-24
    return (r & 0x807f) | (type == MATRIX_BF16 ? 0x3f00 + (r >> 16 & 0x80) : 0x3800 + (r >> 16 & 0x780));
}

static uint32_t half_at(const uint32_t *words, int i)
{
    return words[i / 2] >> 16 * (i % 2) & 0xffff;
}

static void set_half(uint32_t *words, int i, uint32_t half)
{
    words[i / 2] = (words[i / 2] & ~(0xffffu << 16 * (i % 2))) | half << 16 * (i % 2);
}

static void random_words(uint32_t *words, int count, enum matrix_type type, enum kind kind)
{
    for (int i = 0; i < count; i++) {
        words[i] = random_half(type, kind);
        words[i] |= random_half(type, kind) << 16;
    }
}

// ---- the layouts ------------------------------------------------------------------------------------------------

static int elements(const struct matrix_op *op, enum matrix_operand which)
{
    return which == MATRIX_A ? 2 * op->a_words : which == MATRIX_B ? 2 * op->b_words : op->d_words;
}

static void shape(const struct matrix_op *op, enum matrix_operand which, int *height, int *width)
{
    *height = which == MATRIX_B ? op->k : op->m;
    *width = which == MATRIX_A ? op->k : op->n;
}

static int next_number(const char **text)
{
    char *end;
    long n = strtol(*text, &end, 10);

    assert_true(end > *text);
    *text = end;
    return (int)n;
}

static void expect_at(const struct matrix_op *op, enum matrix_operand which, int lane, int e, int row, int col)
{
    int r = -1, c = -1;

    op->at(op, which, lane, e, &r, &c);
    if (r != row || c != col)
        fail_msg("%s operand %d lane %d element %d: %d,%d, not %d,%d", op->name, (int)which, lane, e, r, c, row, col);
}

static void check_grid(const struct matrix_op *op, enum matrix_operand which, const char *text)
{
    int height, width;

    shape(op, which, &height, &width);
    for (int i = 0; i < height * width; i++) {
        int lane, e;

        assert_int_equal(*text++, 'T');
        lane = next_number(&text);
        assert_int_equal(*text++, ':');
        e = next_number(&text);
        assert_int_equal(*text++, i % width == width - 1 ? '\n' : ' ');
        expect_at(op, which, lane, e, i / width, i % width);
    }
    assert_int_equal(*text, 0);
}

static void check_lanes(const struct matrix_op *op, enum matrix_operand which, const char *text)
{
    while (*text) {
        int lane = next_number(&text);

        assert_int_equal(*text++, ':');
        for (int e = 0; e < elements(op, which); e++) {
            int row, col;

            assert_int_equal(*text++, ' ');
            row = next_number(&text);
            assert_int_equal(*text++, ',');
            col = next_number(&text);
            expect_at(op, which, lane, e, row, col);
        }
        assert_int_equal(*text++, '\n');
    }
}

static void test_published(void **state)
{
    (void)state;
    for (int i = 0; i < PUBLISHED; i++) {
        const struct matrix_op *op = matrix_find(published[i].name);

        assert_non_null(op);
        (published[i].grid ? check_grid : check_lanes)(op, MATRIX_A, published[i].a);
        (published[i].grid ? check_grid : check_lanes)(op, MATRIX_B, published[i].b);
        (published[i].grid ? check_grid : check_lanes)(op, MATRIX_D, published[i].d);
    }
}

static void test_rows(void **state)
{
    int count = 0;

    (void)state;
    for (const struct matrix_op *op; (op = matrix_row(count)); count++) {
        bool bf16 = strstr(op->name, "bf16");

        assert_ptr_equal(matrix_find(op->name), op);
        assert_int_equal(op->in, bf16 ? MATRIX_BF16 : MATRIX_F16);
        assert_int_equal(op->lanes, strncmp(op->name, "mma.", 4) ? 64 : 32);
        assert_int_equal(op->lanes * op->a_words * 2, op->m * op->k);
        assert_int_equal(op->lanes * op->b_words * 2, op->n * op->k);
        assert_int_equal(op->lanes * op->d_words, op->m * op->n);
    }
    assert_int_equal(count, PUBLISHED);
    assert_null(matrix_row(-1));
    assert_null(matrix_find("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16"));
    assert_null(matrix_find("llvm.amdgcn.mfma.f32.32x32x8f16.x"));
    assert_null(matrix_find(""));
}

static void test_bijections(void **state)
{
    (void)state;
    for (int i = 0; matrix_row(i); i++) {
        for (int which = MATRIX_A; which <= MATRIX_D; which++) {
            const struct matrix_op *op = matrix_row(i);
            bool seen[32][32] = { { false } };
            int height, width, n = elements(op, which);

            shape(op, which, &height, &width);
            assert_int_equal(op->lanes * n, height * width);
            for (int j = 0; j < op->lanes * n; j++) {
                int row, col;

                op->at(op, which, j / n, j % n, &row, &col);
                assert_in_range(row, 0, height - 1);
                assert_in_range(col, 0, width - 1);
                assert_false(seen[row][col]);
                seen[row][col] = true;
            }
        }
    }
}

// ---- matrix_run -------------------------------------------------------------------------------------------------

struct dense {
    double a[32][32], b[32][32];
    float c[32][32];
};

static void gather(const struct matrix_op *op, const uint32_t *a, const uint32_t *b, const uint32_t *c,
                   struct dense *out)
{
    for (int lane = 0; lane < op->lanes; lane++) {
        int row, col;

        for (int e = 0; e < 2 * op->a_words; e++) {
            op->at(op, MATRIX_A, lane, e, &row, &col);
            out->a[row][col] = value_of(op->in, half_at(a, lane * 2 * op->a_words + e));
        }
        for (int e = 0; e < 2 * op->b_words; e++) {
            op->at(op, MATRIX_B, lane, e, &row, &col);
            out->b[row][col] = value_of(op->in, half_at(b, lane * 2 * op->b_words + e));
        }
        for (int e = 0; e < op->d_words; e++) {
            op->at(op, MATRIX_D, lane, e, &row, &col);
            out->c[row][col] = float_of(c[lane * op->d_words + e]);
        }
    }
}

static void check_run(const struct matrix_op *op, const uint32_t *a, const uint32_t *b, const uint32_t *c,
                      const uint32_t *d)
{
    static struct dense in;

    gather(op, a, b, c, &in);
    for (int i = 0; i < op->lanes * op->d_words; i++) {
        int row, col;
        double sum;

        op->at(op, MATRIX_D, i / op->d_words, i % op->d_words, &row, &col);
        sum = in.c[row][col];
        for (int k = 0; k < op->k; k++)
            sum += in.a[row][k] * in.b[k][col];
        if (isnan(sum) ? !isnan(float_of(d[i])) : bits_of((float)sum) != d[i])
            fail_msg("%s: D[%d][%d] is %.9g, not %.9g", op->name, row, col, (double)float_of(d[i]), sum);
    }
}

static void test_run(void **state)
{
    uint32_t a[256], b[256], c[1024], d[1024];

    (void)state;
    for (int i = 0; matrix_row(i); i++) {
        for (int round = 0; round < 30; round++) {
            const struct matrix_op *op = matrix_row(i);
            enum kind kind = (enum kind)(round % 3);

            random_words(a, op->lanes * op->a_words, op->in, kind);
            random_words(b, op->lanes * op->b_words, op->in, kind);
            for (int j = 0; j < op->lanes * op->d_words; j++)
                c[j] = bits_of(kind == SMALL ? (float)(int)(next_random() % 201) - 100
                                             : ldexpf((float)(int)next_random(), -31 + (int)(next_random() % 9)));
            matrix_run(op, a, b, c, d);
            check_run(op, a, b, c, d);
            memcpy(d, c, sizeof d); // in place
            matrix_run(op, a, b, d, d);
            check_run(op, a, b, c, d);
        }
    }
}

// Every 16 bits, as one element of A against an identity and against ones: zeros, subnormals, Inf and NaN come through.
static void test_every_half(void **state)
{
    static const char *const names[2] = { "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
                                          "llvm.amdgcn.mfma.f32.16x16x16bf16.1k" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct matrix_op *op = matrix_find(names[i % 2]);
        uint32_t a[128] = { 0 }, b[128] = { 0 }, c[256] = { 0 }, d[256];
        uint32_t one = half_of(op->in, 1);
        int count = 2 * op->lanes * op->a_words;

        for (int j = 0; j < 2 * op->lanes * op->b_words; j++) {
            int row, col;

            op->at(op, MATRIX_B, j / (2 * op->b_words), j % (2 * op->b_words), &row, &col);
            set_half(b, j, row == col || i >= 2 ? one : 0);
        }
        for (uint32_t first = 0; first < 0x10000; first += (uint32_t)count) {
            for (int j = 0; j < count; j++)
                set_half(a, j, first + (uint32_t)j);
            matrix_run(op, a, b, c, d);
            check_run(op, a, b, c, d);
        }
    }
}

static void test_nan_and_inf(void **state)
{
    (void)state;
    for (int i = 0; matrix_row(i); i++) {
        const struct matrix_op *op = matrix_row(i);
        uint32_t a[256] = { 0 }, b[256] = { 0 }, c[1024] = { 0 }, d[1024];
        uint32_t inf = op->in == MATRIX_BF16 ? 0x7f80 : 0x7c00;
        int nan_row, inf_row, unused, n = op->d_words;

        for (int j = 0; j < 2 * op->lanes * op->b_words; j++)
            set_half(b, j, half_of(op->in, 2));
        set_half(a, 2 * op->a_words * 3, inf + 1); // a NaN in lane 3, -Inf in lane 5
        set_half(a, 2 * op->a_words * 5, inf | 0x8000);
        op->at(op, MATRIX_A, 3, 0, &nan_row, &unused);
        op->at(op, MATRIX_A, 5, 0, &inf_row, &unused);
        if (nan_row == inf_row)
            fail_msg("lanes 3 and 5 share a row");
        c[op->lanes * n - 1] = bits_of(INFINITY); // the last row has only zeros in A
        matrix_run(op, a, b, c, d);
        for (int j = 0; j < op->lanes * n; j++) {
            int row, col;
            float want = j == op->lanes * n - 1 ? INFINITY : 0;

            op->at(op, MATRIX_D, j / n, j % n, &row, &col);
            if (row == nan_row)
                assert_int_equal(d[j], 0x7fffffff);
            else
                assert_int_equal(d[j], bits_of(row == inf_row ? -INFINITY : want));
        }
    }
    { // a sum past the range of f32
        const struct matrix_op *op = matrix_find("llvm.amdgcn.mfma.f32.16x16x16bf16.1k");
        uint32_t a[128], b[128], c[256] = { 0 }, d[256];

        for (int j = 0; j < 128; j++)
            a[j] = b[j] = 0x7f007f00;
        matrix_run(op, a, b, c, d);
        assert_int_equal(d[17], bits_of(INFINITY));
    }
}

// ---- shared memory ----------------------------------------------------------------------------------------------

static const char *const *chunk_table(int width)
{
    return width == 128 ? chunks_128 : width == 64 ? chunks_64 : width == 32 ? chunks_32 : chunks_0;
}

static void test_swizzle(void **state)
{
    static const int widths[4] = { 0, 32, 64, 128 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        for (uint32_t address = 0; address < 4096; address++) {
            char chunk = chunk_table(widths[i])[address / 128 % 8][address / 16 % 8];
            uint32_t want = address / 128 * 128 + (uint32_t)(chunk - '0') * 16 + address % 16;

            if (smem_swizzle(widths[i], address) != want)
                fail_msg("%d bytes: %u goes to %u, not %u", widths[i], address, smem_swizzle(widths[i], address), want);
        }
    }
}

// Element (row, col) of matrix i is 0x1000 i + 16 row + col; the rows lie about in memory.
static void test_ldmatrix(void **state)
{
    (void)state;
    for (int count = 1; count <= 4; count *= 2) {
        for (int trans = 0; trans < 2; trans++) {
            uint8_t memory[32][24];
            const uint8_t *rows[32];
            uint32_t regs[128];

            for (int i = 0; i < 8 * count; i++) {
                rows[i] = memory[(i * 5 + 3) % 32];
                for (int col = 0; col < 8; col++) {
                    int value = 0x1000 * (i / 8) + 16 * (i % 8) + col;

                    memory[(i * 5 + 3) % 32][2 * col] = (uint8_t)value;
                    memory[(i * 5 + 3) % 32][2 * col + 1] = (uint8_t)(value >> 8);
                }
            }
            ldmatrix_run(count, trans, rows, regs);
            for (int i = 0; i < 64 * count; i++) {
                int row = i / 8 % 8, col = i % 8; // row and column of what the thread sees
                uint32_t word = regs[ldmatrix_thread[row][col] * count + i / 64];
                int want = 0x1000 * (i / 64) + (trans ? 16 * col + row : 16 * row + col);

                assert_int_equal(word >> 16 * (col % 2) & 0xffff, want);
            }
        }
    }
}

static void test_stmatrix(void **state)
{
    (void)state;
    for (int count = 1; count <= 4; count *= 2) {
        for (int trans = 0; trans < 2; trans++) {
            uint8_t memory[32][18], *rows[32];
            const uint8_t *read[32];
            uint32_t regs[128], again[128];

            memset(memory, 0xee, sizeof memory);
            for (int i = 0; i < 8 * count; i++)
                read[i] = rows[i] = memory[(i * 7 + 1) % 32];
            for (int i = 0; i < 32 * count; i++)
                regs[i] = next_random();
            stmatrix_run(count, trans, rows, regs);
            for (int i = 0; i < 64 * count; i++) {
                int row = i / 8 % 8, col = i % 8;
                uint32_t want = regs[ldmatrix_thread[row][col] * count + i / 64] >> 16 * (col % 2) & 0xffff;
                const uint8_t *at = rows[i / 64 * 8 + (trans ? col : row)] + 2 * (trans ? row : col);

                assert_int_equal(at[0] | at[1] << 8, want);
            }
            for (int i = 0; i < 32; i++)
                assert_true(memory[i][16] == 0xee && memory[i][17] == 0xee);
            ldmatrix_run(count, trans, read, again);
            assert_memory_equal(again, regs, (size_t)(32 * count) * sizeof *regs);
        }
    }
}

// ---- wgmma ------------------------------------------------------------------------------------------------------

enum { DEPTH = 64, MEMORY = 80 * 1024 };

// An operand of `extent` rows (A) or columns (B), 64 deep, as TMA boxes leave it in shared memory: a box is one
// swizzle width wide (8 elements without swizzle) along the major dimension and as long as the other one; boxes follow
// each other.
struct tile {
    int extent, width;
    bool mn_major;
    uint32_t start, base; // base: the line of 128 bytes, modulo 8, at which the swizzle's pattern starts
    uint32_t halves[256][DEPTH];
};

static int box_elements(const struct tile *t)
{
    return t->width ? t->width / 2 : 8;
}

static uint32_t tile_address(const struct tile *t, int i, int k)
{
    int inner = t->mn_major ? i : k, outer = t->mn_major ? k : i, length = t->mn_major ? DEPTH : t->extent;
    int box = box_elements(t);
    uint32_t at = t->start + (uint32_t)(2 * (inner / box * length * box + outer * box + inner % box));
    char chunk = chunk_table(t->width)[(at / 128 - t->base) % 8][at / 16 % 8];

    return at / 128 * 128 + (uint32_t)(chunk - '0') * 16 + at % 16;
}

static void write_tile(struct tile *t, uint8_t *memory, enum matrix_type type, enum kind kind)
{
    for (int i = 0; i < t->extent; i++) {
        for (int k = 0; k < DEPTH; k++) {
            uint32_t at = tile_address(t, i, k);

            t->halves[i][k] = random_half(type, kind);
            assert_in_range(at, 0, MEMORY - 2);
            memory[at] = (uint8_t)t->halves[i][k];
            memory[at + 1] = (uint8_t)(t->halves[i][k] >> 8);
        }
    }
}

static uint64_t descriptor(uint32_t start, uint32_t leading, uint32_t stride, uint32_t base, int width)
{
    uint64_t mode = width == 128 ? 1 : width == 64 ? 2 : width == 32 ? 3 : 0;

    return (uint64_t)(start >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)base << 49 | mode << 62;
}

// For the 16 k from 16 * slice on.
static uint64_t tile_descriptor(const struct tile *t, int slice)
{
    uint32_t box = 2 * (uint32_t)box_elements(t), k = 16 * (uint32_t)slice, extent = (uint32_t)t->extent;

    if (!t->mn_major && t->width) // the leading offset is not used: any
        return descriptor(t->start + 2 * k / box * box * extent + 2 * k % box, 16 * (next_random() % 999), 8 * box,
                          t->base, t->width);
    if (!t->mn_major)
        return descriptor(t->start + k / 8 * 16 * extent, 16 * extent, 8 * 16, 0, 0);
    if (t->width)
        return descriptor(t->start + k * box, DEPTH * box, 8 * box, t->base, t->width);
    return descriptor(t->start + k * 16, 8 * 16, DEPTH * 16, 0, 0);
}

struct touched {
    bool bytes[MEMORY];
    int calls;
};

static void touch(void *user, uint32_t address, int bytes)
{
    struct touched *t = user;

    assert_int_equal(bytes, 16);
    assert_int_equal(address % 16, 0);
    assert_true(address + 16 <= MEMORY);
    for (int i = 0; i < bytes; i++)
        t->bytes[address + (uint32_t)i] = true;
    t->calls++;
}

// Takes back the touches of the slice's own bytes: none may be missing, and none may be left in the end.
static void untouch(const struct tile *t, int slice, struct touched *touched)
{
    for (int i = 0; i < t->extent; i++) {
        for (int k = 16 * slice; k < 16 * slice + 16; k++) {
            uint32_t at = tile_address(t, i, k);

            assert_true(touched->bytes[at] && touched->bytes[at + 1]);
            touched->bytes[at] = touched->bytes[at + 1] = false;
        }
    }
    touched->calls -= 2 * t->extent;
}

// PTX ISA, "Register fragments" of wgmma, from the matrix to the registers.
static int a_element(int row, int k)
{
    int thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;

    return thread * 8 + k / 8 * 4 + row % 16 / 8 * 2 + k % 2;
}

static int d_word(int n, int row, int col)
{
    int thread = row / 16 * 32 + row % 8 * 4 + col % 8 / 2;

    return thread * (n / 2) + col / 8 * 4 + row % 16 / 8 * 2 + col % 2;
}

static void check_wgmma(const struct wgmma *w, const struct tile *a, const struct tile *b, int slice,
                        const uint8_t *memory)
{
    static uint32_t c[128 * 128], d[128 * 128], regs[512];
    static struct touched touched;
    char why[128] = "";

    for (int i = 0; i < 64 * w->n; i++)
        d[i] = c[i] = bits_of((float)(int)(next_random() % 201) - 100);
    for (int i = 0; i < 64 * 16; i++)
        set_half(regs, a_element(i / 16, i % 16), a->halves[i / 16][16 * slice + i % 16]);
    memset(&touched, 0, sizeof touched);
    if (!wgmma_run(w, memory, MEMORY, w->a_shared ? NULL : regs, w->a_shared ? tile_descriptor(a, slice) : 0,
                   tile_descriptor(b, slice), d, touch, &touched, why))
        fail_msg("%s", why);
    for (int i = 0; i < 64 * w->n; i++) {
        int row = i / w->n, col = i % w->n, at = d_word(w->n, row, col);
        double sum = w->scale_d ? (double)float_of(c[at]) : 0;

        for (int k = 16 * slice; k < 16 * slice + 16; k++)
            sum += w->scale_a * value_of(w->in, a->halves[row][k]) * w->scale_b * value_of(w->in, b->halves[col][k]);
        if (bits_of((float)sum) != d[at])
            fail_msg("n %d, A %s %d bytes %s, B %d bytes %s, slice %d: D[%d][%d] is %g, not %g", w->n,
                     w->a_shared ? "shared" : "registers", a->width, w->trans_a ? "MN" : "K", b->width,
                     w->trans_b ? "MN" : "K", slice, row, col, (double)float_of(d[at]), sum);
    }
    if (w->a_shared)
        untouch(a, slice, &touched);
    untouch(b, slice, &touched);
    assert_int_equal(touched.calls, 0);
    for (int i = 0; i < MEMORY; i++)
        assert_false(touched.bytes[i]);
}

static const int widths[4] = { 0, 32, 64, 128 };

// Lays the operands out and multiplies. a_place: 0 registers, 1 shared and K-major, 2 shared and MN-major.
static void lay_and_check(struct wgmma *w, int a_place, int a_width, int b_width, uint32_t a_base, uint32_t b_base,
                          enum kind kind)
{
    static uint8_t memory[MEMORY];
    static struct tile a, b;

    w->a_shared = a_place != 0;
    w->trans_a = a_place == 2;
    a = (struct tile){ 64, a_width, w->trans_a, 2048 + 128 * a_base, a_base, { { 0 } } };
    b = (struct tile){ w->n, b_width, w->trans_b, 20480 + 128 * b_base, b_base, { { 0 } } };
    memset(memory, 0xff, sizeof memory); // NaN in both types
    write_tile(&a, memory, w->in, kind);
    write_tile(&b, memory, w->in, kind);
    for (int slice = 0; slice < DEPTH / 16; slice++)
        check_wgmma(w, &a, &b, slice, memory);
}

static void test_wgmma_layouts(void **state)
{
    static const int sizes[] = { 8, 24, 64, 96, 256 };
    int round = 0;

    (void)state;
    for (int i = 0; i < 4 * 4 * 3 * 2; i++) {
        struct wgmma w = { .n = sizes[round % 5],
                           .in = round & 1 ? MATRIX_F16 : MATRIX_BF16,
                           .scale_d = round % 3 != 0,
                           .scale_a = round & 2 ? 1 : -1,
                           .scale_b = round & 4 ? 1 : -1,
                           .trans_b = i / 48 != 0 };

        lay_and_check(&w, i / 16 % 3, widths[i % 4], widths[i / 4 % 4], 0, 0, SMALL);
        w.n = sizes[(round + 2) % 5];
        lay_and_check(&w, i / 16 % 3, widths[i % 4], widths[i / 4 % 4], 0, 0, UNIT);
        round++;
    }
}

static void test_wgmma_sizes(void **state)
{
    (void)state;
    for (int n = 8; n <= 256; n += 8) {
        struct wgmma w = { .n = n, .scale_d = true, .scale_a = 1, .scale_b = 1, .trans_b = n % 16 != 0 };

        w.in = n % 24 == 0 ? MATRIX_F16 : MATRIX_BF16;
        lay_and_check(&w, n / 8 % 3, 128, 128, 0, 0, WIDE);
    }
}

// Patterns that start at no multiple of their length.
static void test_wgmma_base_offset(void **state)
{
    (void)state;
    for (uint32_t base = 1; base < 8; base++) {
        for (int i = 0; i < 2 * 3 * 2; i++) {
            struct wgmma w = { .n = 96, .in = MATRIX_BF16, .scale_d = true, .scale_a = 1, .scale_b = 1 };

            w.trans_b = i % 2;
            lay_and_check(&w, 1 + i / 6, widths[1 + i / 2 % 3], widths[1 + i / 2 % 3], base, 8 - base, SMALL);
        }
    }
}

static void expect_malformed(struct wgmma w, uint64_t a, uint64_t b, const char *word)
{
    static uint8_t memory[4096];
    static uint32_t regs[512], d[128 * 128];
    char why[128] = "";

    memset(d, 0x55, sizeof d);
    if (wgmma_run(&w, memory, sizeof memory, regs, a, b, d, NULL, NULL, why))
        fail_msg("taken: %016llx %016llx (%s)", (unsigned long long)a, (unsigned long long)b, word);
    if (!strstr(why, word))
        fail_msg("no \"%s\" in: %s", word, why);
    for (int i = 0; i < 128 * 128; i++)
        assert_int_equal(d[i], 0x55555555);
}

static void test_wgmma_malformed(void **state)
{
    static const int bad_n[] = { 0, -8, 4, 12, 260, 264 };
    static const int holes[] = { 14, 15, 30, 31, 46, 47, 48, 52, 53, 60, 61 };
    struct wgmma good = { .n = 8, .in = MATRIX_F16, .a_shared = true, .scale_d = true, .scale_a = 1, .scale_b = 1 };
    uint64_t a = descriptor(0, 128, 256, 0, 0), b = descriptor(2048, 128, 256, 0, 0);
    static uint8_t memory[4096];
    static uint32_t d[512];
    struct wgmma w;
    char why[128] = "";

    (void)state;
    assert_true(wgmma_run(&good, memory, sizeof memory, NULL, a, b, d, NULL, NULL, why));
    for (size_t i = 0; i < sizeof holes / sizeof *holes; i++) {
        expect_malformed(good, a | UINT64_C(1) << holes[i], b, "descriptor of A");
        expect_malformed(good, a, b | UINT64_C(1) << holes[i], "descriptor of B");
    }
    expect_malformed(good, a | UINT64_C(3) << 49, b, "base offset (3)");
    assert_true(
        wgmma_run(&good, memory, sizeof memory, NULL, a, descriptor(4096 - 256, 128, 0, 0, 0), d, NULL, NULL, why));
    expect_malformed(good, a, descriptor(4096 - 240, 128, 0, 0, 0), "past the shared memory");
    assert_false(wgmma_run(&good, memory, 4095, NULL, a, descriptor(4096 - 256, 128, 0, 0, 0), d, NULL, NULL, why));
    expect_malformed(good, descriptor(2304, 128, 256, 0, 0), b, "descriptor of A");
    expect_malformed(good, descriptor(0x3fff0, 0x3fff0, 0x3fff0, 0, 128), b, "past the shared memory");
    w = good, w.trans_a = true, w.a_shared = false;
    expect_malformed(w, a, b, "registers");
    for (int i = 0; i < 6; i++) {
        w = good, w.n = bad_n[i];
        expect_malformed(w, a, b, "multiple of 8");
    }
    w = good, w.in = MATRIX_F32;
    expect_malformed(w, a, b, "neither");
    w = good, w.scale_a = 0;
    expect_malformed(w, a, b, "scales");
    w = good, w.scale_b = 2;
    expect_malformed(w, a, b, "scales");
}

static void test_wgmma_nan(void **state)
{
    struct wgmma w = { .n = 8, .in = MATRIX_BF16, .scale_d = false, .scale_a = 1, .scale_b = 1 };
    uint8_t memory[256] = { 0 };
    uint32_t regs[512] = { 0 }, d[512] = { 0 };
    char why[128];

    (void)state;
    for (int i = 0; i < 256; i += 2)
        memory[i + 1] = 0x40, memory[i] = 0; // 2 everywhere
    set_half(regs, a_element(9, 4), 0x7fc0);
    set_half(regs, a_element(40, 15), 0xff80);
    memset(d, 0xff, sizeof d); // NaN; scale_d false: not read
    assert_true(wgmma_run(&w, memory, sizeof memory, regs, 0, descriptor(0, 128, 0, 0, 0), d, NULL, NULL, why));
    for (int row = 0; row < 64; row++) {
        for (int col = 0; col < 8; col++)
            assert_int_equal(d[d_word(8, row, col)], row == 9 ? 0x7fffffff : row == 40 ? bits_of(-INFINITY) : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_bijections),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_nan_and_inf),
        cmocka_unit_test(test_swizzle),
        cmocka_unit_test(test_ldmatrix),
        cmocka_unit_test(test_stmatrix),
        cmocka_unit_test(test_wgmma_layouts),
        cmocka_unit_test(test_wgmma_sizes),
        cmocka_unit_test(test_wgmma_base_offset),
        cmocka_unit_test(test_wgmma_malformed),
        cmocka_unit_test(test_wgmma_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
