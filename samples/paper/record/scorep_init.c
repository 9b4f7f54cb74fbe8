/* The parts of Score-P's measurement that the programs use: MPI, without threads. Score-P's instrumenter
 * would write this file. */
#include <stddef.h>

struct SCOREP_Subsystem;
extern const struct SCOREP_Subsystem SCOREP_Subsystem_Substrates, SCOREP_Subsystem_TaskStack,
    SCOREP_Subsystem_MetricService, SCOREP_Subsystem_UnwindingService, SCOREP_Subsystem_Topologies,
    SCOREP_Subsystem_PlatformTopology, SCOREP_Subsystem_IoManagement, SCOREP_Subsystem_MpiAdapter,
    SCOREP_Subsystem_ThreadForkJoin;

const struct SCOREP_Subsystem *scorep_subsystems[] = {
    &SCOREP_Subsystem_Substrates,       &SCOREP_Subsystem_TaskStack,    &SCOREP_Subsystem_MetricService,
    &SCOREP_Subsystem_UnwindingService, &SCOREP_Subsystem_Topologies,   &SCOREP_Subsystem_PlatformTopology,
    &SCOREP_Subsystem_IoManagement,     &SCOREP_Subsystem_MpiAdapter,   &SCOREP_Subsystem_ThreadForkJoin,
};
const size_t scorep_number_of_subsystems = sizeof scorep_subsystems / sizeof scorep_subsystems[0];
