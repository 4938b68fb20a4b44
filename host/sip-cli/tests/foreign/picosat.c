#include "driver.h"
#include <picosat.h>
int main(void) {
    for (int holes = 3; holes <= 7; holes++)
        for (int pigeons = holes; pigeons <= holes + 1; pigeons++) {
            PicoSAT *solver = picosat_init();
            for (int p = 0; p < pigeons; p++) {
                for (int h = 1; h <= holes; h++) picosat_add(solver, p * holes + h);
                picosat_add(solver, 0);
            }
            for (int h = 1; h <= holes; h++)
                for (int p = 0; p < pigeons; p++)
                    for (int q = 0; q < p; q++)
                        picosat_add(solver, -(p * holes + h)), picosat_add(solver, -(q * holes + h)), picosat_add(solver, 0);
            int result = picosat_sat(solver, -1);
            printf("%d %d: %d", pigeons, holes, result);
            if (result == PICOSAT_SATISFIABLE)
                for (int v = 1; v <= pigeons * holes; v++) printf(" %d", picosat_deref(solver, v));
            printf(" %d\n", (int)picosat_decisions(solver));
            picosat_reset(solver);
        }
    return 0;
}
