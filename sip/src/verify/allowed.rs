//! The list of instructions whose effects are their operands and the flags.
//!
//! Gathered from the test corpus and completed by hand. None of these may be privileged, have an implied memory
//! operand, or transfer control. They were read twice beside the manuals and stepped on a processor (docs/sip.md).

use iced_x86::Mnemonic as M;

/// The list. Vector registers hold nothing that the proof leans on.
#[rustfmt::skip]
pub const ALLOWED: &[M] = &[
    M::Adc, M::Add, M::Addpd, M::Addps, M::Addsd, M::Addss, M::And, M::Andn, M::Andnpd, M::Andnps, M::Andpd,
    M::Andps, M::Blendvpd, M::Blendvps, M::Blsi, M::Blsmsk, M::Blsr, M::Bsf, M::Bsr, M::Bswap, M::Bt, M::Bzhi,
    M::Cbw, M::Cdq, M::Cdqe, M::Cmove, M::Cmovg, M::Cmovge, M::Cmovl, M::Cmovle, M::Cmovne, M::Cmovno, M::Cmovnp,
    M::Cmovns, M::Cmovo, M::Cmovp, M::Cmovs, M::Cmppd, M::Cmpps, M::Cqo, M::Cvtdq2pd, M::Cvtdq2ps, M::Cvtpd2ps,
    M::Cvtps2pd, M::Cvtsd2ss, M::Cvtsi2sd, M::Cvtsi2ss, M::Cvtss2sd, M::Cvttpd2dq, M::Cvttps2dq, M::Cvttsd2si,
    M::Cvttss2si, M::Cwd, M::Cwde, M::Dec, M::Div, M::Divpd, M::Divps, M::Divsd, M::Divss, M::Idiv, M::Imul, M::Inc,
    M::Insertps, M::Lzcnt, M::Maxpd, M::Maxps, M::Maxsd, M::Maxss, M::Minpd, M::Minps, M::Minsd, M::Minss,
    M::Movapd, M::Movaps, M::Movd, M::Movddup, M::Movdqa, M::Movdqu, M::Movhlps, M::Movlhps, M::Movmskpd,
    M::Movmskps, M::Movq, M::Movsd, M::Movss, M::Movsx, M::Movupd, M::Movups, M::Mul, M::Mulpd, M::Mulps, M::Mulsd,
    M::Mulss, M::Mulx, M::Neg, M::Nop, M::Not, M::Or, M::Orpd, M::Orps, M::Pabsb, M::Pabsd, M::Pabsw, M::Packssdw,
    M::Packsswb, M::Packusdw, M::Packuswb, M::Paddb, M::Paddd, M::Paddq, M::Paddsb, M::Paddsw, M::Paddusb,
    M::Paddusw, M::Paddw, M::Palignr, M::Pand, M::Pandn, M::Pavgb, M::Pavgw, M::Pblendvb, M::Pblendw, M::Pcmpeqb,
    M::Pcmpeqd, M::Pcmpeqq, M::Pcmpeqw, M::Pcmpgtb, M::Pcmpgtd, M::Pcmpgtq, M::Pcmpgtw, M::Pextrb, M::Pextrd,
    M::Pextrq, M::Pextrw, M::Phaddd, M::Phaddw, M::Pinsrb, M::Pinsrd, M::Pinsrq, M::Pinsrw, M::Pmaddubsw,
    M::Pmaddwd, M::Pmaxsb, M::Pmaxsd, M::Pmaxsw, M::Pmaxub, M::Pmaxud, M::Pmaxuw, M::Pminsb, M::Pminsd, M::Pminsw,
    M::Pminub, M::Pminud, M::Pminuw, M::Pmovmskb, M::Pmovsxbw, M::Pmovsxdq, M::Pmovsxwd, M::Pmovzxbd, M::Pmovzxbw,
    M::Pmovzxdq, M::Pmovzxwd, M::Pmuldq, M::Pmulhrsw, M::Pmulhuw, M::Pmulhw, M::Pmulld, M::Pmullw, M::Pmuludq,
    M::Popcnt, M::Por, M::Pshufb, M::Pshufd, M::Pshufhw, M::Pshuflw, M::Pslld, M::Pslldq, M::Psllq, M::Psllw,
    M::Psrad, M::Psraw, M::Psrld, M::Psrldq, M::Psrlq, M::Psrlw, M::Psubb, M::Psubd, M::Psubq, M::Psubsb, M::Psubsw,
    M::Psubusb, M::Psubusw, M::Psubw, M::Ptest, M::Punpckhbw, M::Punpckhdq, M::Punpckhqdq, M::Punpckhwd,
    M::Punpcklbw, M::Punpckldq, M::Punpcklqdq, M::Punpcklwd, M::Pxor, M::Rol, M::Ror, M::Rorx, M::Roundpd,
    M::Roundps, M::Roundsd, M::Roundss, M::Sar, M::Sarx, M::Sbb, M::Seta, M::Setae, M::Setb, M::Setbe, M::Sete,
    M::Setg, M::Setge, M::Setl, M::Setle, M::Setne, M::Setno, M::Setnp, M::Setns, M::Seto, M::Setp, M::Sets, M::Shl,
    M::Shld, M::Shlx, M::Shr, M::Shrd, M::Shrx, M::Shufps, M::Sqrtpd, M::Sqrtps, M::Sqrtsd, M::Sqrtss, M::Sub,
    M::Subpd, M::Subps, M::Subsd, M::Subss, M::Test, M::Tzcnt, M::Ucomisd, M::Ucomiss, M::Unpckhpd, M::Unpckhps,
    M::Unpcklpd, M::Unpcklps, M::Vaddpd, M::Vaddps, M::Vaddsd, M::Vaddss, M::Vandnpd, M::Vandnps, M::Vandpd,
    M::Vandps, M::Vblendvpd, M::Vblendvps, M::Vbroadcastss, M::Vcmppd, M::Vcmpps, M::Vcvtdq2pd, M::Vcvtdq2ps,
    M::Vcvtpd2ps, M::Vcvtps2pd, M::Vcvtsd2ss, M::Vcvtsi2sd, M::Vcvtsi2ss, M::Vcvtss2sd, M::Vcvttpd2dq,
    M::Vcvttps2dq, M::Vcvttsd2si, M::Vcvttss2si, M::Vdivpd, M::Vdivps, M::Vdivsd, M::Vdivss, M::Vinsertps,
    M::Vmaxpd, M::Vmaxps, M::Vmaxsd, M::Vmaxss, M::Vminpd, M::Vminps, M::Vminsd, M::Vminss, M::Vmovapd, M::Vmovaps, M::Vmovd, M::Vmovddup,
    M::Vmovdqa, M::Vmovdqu, M::Vmovhlps, M::Vmovlhps, M::Vmovmskpd, M::Vmovmskps, M::Vmovq, M::Vmovsd, M::Vmovss,
    M::Vmovupd, M::Vmovups, M::Vmulpd, M::Vmulps, M::Vmulsd, M::Vmulss, M::Vorpd, M::Vorps, M::Vpabsb, M::Vpabsd,
    M::Vpabsw, M::Vpackssdw, M::Vpacksswb, M::Vpackusdw, M::Vpackuswb, M::Vpaddb, M::Vpaddd, M::Vpaddq, M::Vpaddsb,
    M::Vpaddsw, M::Vpaddusb, M::Vpaddusw, M::Vpaddw, M::Vpalignr, M::Vpand, M::Vpandn, M::Vpavgb, M::Vpavgw,
    M::Vpblendvb, M::Vpblendw, M::Vpbroadcastb, M::Vpbroadcastd, M::Vpbroadcastw, M::Vpcmpeqb, M::Vpcmpeqd,
    M::Vpcmpeqq, M::Vpcmpeqw, M::Vpcmpgtb, M::Vpcmpgtd, M::Vpcmpgtq, M::Vpcmpgtw, M::Vpermilps, M::Vpextrb,
    M::Vpextrd, M::Vpextrq, M::Vpextrw, M::Vphaddd, M::Vphaddw, M::Vpinsrb, M::Vpinsrd, M::Vpinsrq, M::Vpinsrw,
    M::Vpmaddubsw, M::Vpmaddwd, M::Vpmaxsb, M::Vpmaxsd, M::Vpmaxsw, M::Vpmaxub, M::Vpmaxud, M::Vpmaxuw, M::Vpminsb,
    M::Vpminsd, M::Vpminsw, M::Vpminub, M::Vpminud, M::Vpminuw, M::Vpmovmskb, M::Vpmovsxbw, M::Vpmovsxdq,
    M::Vpmovsxwd, M::Vpmovzxbw, M::Vpmovzxdq, M::Vpmovzxwd, M::Vpmuldq, M::Vpmulhrsw, M::Vpmulhuw, M::Vpmulhw,
    M::Vpmulld, M::Vpmullw, M::Vpmuludq, M::Vpor, M::Vpshufb, M::Vpshufd, M::Vpshufhw, M::Vpshuflw, M::Vpslld,
    M::Vpslldq, M::Vpsllq, M::Vpsllvd, M::Vpsllw, M::Vpsrad, M::Vpsravd, M::Vpsraw, M::Vpsrld, M::Vpsrldq,
    M::Vpsrlq, M::Vpsrlvd, M::Vpsrlw, M::Vpsubb, M::Vpsubd, M::Vpsubq, M::Vpsubsb, M::Vpsubsw, M::Vpsubusb,
    M::Vpsubusw, M::Vpsubw, M::Vptest, M::Vpunpckhbw, M::Vpunpckhdq, M::Vpunpckhqdq, M::Vpunpckhwd, M::Vpunpcklbw,
    M::Vpunpckldq, M::Vpunpcklqdq, M::Vpunpcklwd, M::Vpxor, M::Vroundpd, M::Vroundps, M::Vroundsd, M::Vroundss,
    M::Vshufps, M::Vsqrtpd, M::Vsqrtps, M::Vsqrtsd, M::Vsqrtss, M::Vsubpd, M::Vsubps, M::Vsubsd, M::Vsubss,
    M::Vucomisd, M::Vucomiss, M::Vunpckhpd, M::Vunpckhps, M::Vunpcklpd, M::Vunpcklps, M::Vxorpd, M::Vxorps, M::Xor,
    M::Xorpd, M::Xorps,
];
