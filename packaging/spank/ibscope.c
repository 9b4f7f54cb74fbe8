/*
 * Slurm plugin (SPANK) that adds the option --ibscope[=on|off] to sbatch, salloc and srun.
 *
 * It passes the user's choice to the hooks of slurmctld as the variable SPANK_IBSCOPE. The hooks
 * accept the values "on" and "off" only.
 */
#include <slurm/spank.h>
#include <stddef.h>
#include <string.h>

/* Slurm refuses plugins that were compiled for another version of Slurm. */
SPANK_PLUGIN(ibscope, 1)

/* The user's choice; NULL without the option. */
static const char *choice;

static int choose(int value, const char *word, int remote)
{
	(void) value;
	(void) remote;
	/* Without a value, sbatch passes NULL, and slurmd an empty text. */
	if (word == NULL || *word == '\0' || strcmp(word, "on") == 0) {
		choice = "on";
	} else if (strcmp(word, "off") == 0) {
		choice = "off";
	} else {
		slurm_error("--ibscope=%s: expected on or off", word);
		return ESPANK_BAD_ARG;
	}
	return ESPANK_SUCCESS;
}

static struct spank_option option = {
	.name = "ibscope",
	.arginfo = "on|off",
	.usage = "Capture the network traffic of the job (on, the default), or not (off).",
	.has_arg = 2, /* optional */
	.val = 0,
	.cb = choose,
};

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	(void) argc;
	(void) argv;
	return spank_option_register(spank, &option);
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	(void) argc;
	(void) argv;
	/* Only sbatch, salloc and srun can set variables of the hooks, not slurmd and its steps. */
	const spank_context_t context = spank_context();
	if (choice == NULL || (context != S_CTX_ALLOCATOR && context != S_CTX_LOCAL))
		return ESPANK_SUCCESS;
	return spank_job_control_setenv(spank, "IBSCOPE", choice, 1);
}
