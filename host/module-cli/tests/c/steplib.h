long plain(long a);
long base(long by);
long seven(long a, long b, long c, long d, long e, long f, long g);
long ten(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j);
long many(int count, ...);
long back(long (*call)(long), long argument);
