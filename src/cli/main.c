/* main.c - the program; all of it is in cli.c and the files that it uses, where tests can reach it.
 */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return dl_cli_main(argc, argv);
}
