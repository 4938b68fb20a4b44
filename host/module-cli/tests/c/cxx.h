/* What the two C++ modules of the test say to each other. */
#pragma once
#include <string>

struct Failure {
	int number;
	explicit Failure(int number) : number(number) {}
	virtual ~Failure() {}
	virtual const char *what() const;
};

struct Worse : Failure {
	std::string why;
	Worse(int number, const char *why) : Failure(number), why(why) {}
	const char *what() const override;
};

struct Named { virtual std::string name(const std::string &greeting) = 0; virtual ~Named() {} };
struct Counted { virtual int count() = 0; virtual Counted *self() = 0; virtual ~Counted() {} };
struct Shape : Named, Counted {
	std::string own;
	explicit Shape(std::string own);
	~Shape() override;
	std::string name(const std::string &greeting) override;
	int count() override;
	Shape *self() override;
};

inline int &made_once()
{
	static int number = *new int(7);
	return number;
}

extern "C" {
int raise_kind(int kind);
long raise_at(long a, long b, long c, long d, long e, long f, long g, long h, long i);
int through(int (*call)(void *), void *argument);
void sort_with(int *numbers, long count, int (*compare)(const void *, const void *));
Shape *make_shape(const char *name);
int alive(void);
std::string joined(std::string first, const std::string &second, long a, long b, long c, long d, std::string last);
int calls_once(void);
int catches_all(int (*call)(void *), void *argument);
}
