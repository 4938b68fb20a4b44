/* Expat is configured by the flags of its program (packages.rs). */
