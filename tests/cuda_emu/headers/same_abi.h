/* same_abi.h - compares a declaration of ours with a library's header, when it is compiled. Ours
 * names no type of the library: handles are void *, enumerations are int. */
#ifndef DL_TESTS_CUDA_EMU_SAME_ABI_H
#define DL_TESTS_CUDA_EMU_SAME_ABI_H

#include <cstddef>
#include <type_traits>

template <typename T, typename = void> struct is_known : std::false_type {
};
template <typename T> struct is_known<T, std::void_t<decltype(sizeof(T))>> : std::true_type {
};

template <typename Ours, typename Theirs> constexpr bool fits();

/* Pointers to these. A type without a size may be anything. The bytes of a struct may be ours. */
template <typename Ours, typename Theirs> constexpr bool points_alike()
{
    if constexpr (std::is_const_v<Ours> && !std::is_const_v<Theirs>)
        return false; /* the library writes to it */
    else if constexpr (std::is_void_v<Ours> || !is_known<Ours>::value || !is_known<Theirs>::value)
        return true;
    else if constexpr (std::is_class_v<Theirs>)
        return std::is_same_v<Ours, unsigned char> ||
               (std::is_class_v<Ours> && sizeof(Ours) == sizeof(Theirs) &&
                alignof(Ours) == alignof(Theirs));
    else
        return fits<std::remove_cv_t<Ours>, std::remove_cv_t<Theirs>>();
}

/* Returns whether a value of the type Ours is passed as one of Theirs. */
template <typename Ours, typename Theirs> constexpr bool fits()
{
    if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>)
        return points_alike<std::remove_pointer_t<Ours>, std::remove_pointer_t<Theirs>>();
    else if constexpr (std::is_integral_v<Ours>)
        return (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>)&&sizeof(Ours) ==
               sizeof(Theirs);
    else
        return std::is_same_v<Ours, Theirs>;
}

template <typename Ours, typename Theirs> struct same_function : std::false_type {
};
template <typename R, typename... A, typename S, typename... B>
struct same_function<R (*)(A...), S (*)(B...)> {
    static constexpr bool arguments()
    {
        if constexpr (sizeof...(A) == sizeof...(B))
            return (fits<A, B>() && ...);
        else
            return false;
    }
    static constexpr bool value = fits<R, S>() && arguments();
};

/* The library's symbol, the type of its result, our arguments. */
#define SAME_SIGNATURE(symbol, result, arguments)                                                  \
    static_assert(same_function<result(*) arguments, decltype(&symbol)>::value,                    \
                  #symbol " has other arguments or another result");
/* A row of our tables: each result is an int. */
#define SAME_FUNCTION(name, symbol, arguments) SAME_SIGNATURE(symbol, int, arguments)

#define SAME_VALUE(ours, theirs)                                                                   \
    static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs),                  \
                  #ours " has another value");

/* A member of a struct has the same offset and size. */
#define SAME_MEMBER(ours, member, theirs, its_member)                                              \
    static_assert(offsetof(ours, member) == offsetof(theirs, its_member) &&                        \
                      sizeof(ours::member) == sizeof(theirs::its_member),                          \
                  #ours "." #member " is elsewhere");

#endif
