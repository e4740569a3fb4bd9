/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program as a user writes it: <ndk/ndk.h> before anything else and twice. The tests have
 * every compiler at hand read it as C11, C17 and C++17 with all warnings; it is never run.
 */
#include <ndk/ndk.h>
#include <ndk/ndk.h>

#include <netinet/in.h>
#include <string.h>

struct program {
	NDK_ADAPTER *adapter;
	NDK_MR *mr;
	NDK_MW *mw;
	NDK_QP *qp;
	UINT32 token;
};

static void registered(PVOID context, NTSTATUS status)
{
	struct program *program = (struct program *)context;
	MDL *mdl = NULL;

	if (!NT_SUCCESS(status) || !NT_SUCCESS(OrielAllocateMemory(4096, 0, &mdl)))
		return;
	status = NdkBind(program->qp, NULL, program->mr, program->mw, mdl->StartVa, mdl->ByteCount,
			 NDK_OP_FLAG_ALLOW_REMOTE_WRITE | ORIEL_OP_FLAG_TIE_TO_QP);
	if (status == STATUS_SUCCESS)
		program->token = NdkGetRemoteTokenFromMw(program->mw);
}

static void drain(NDK_CQ *cq)
{
	NDK_RESULT_EX result[16];
	ULONG count = NdkGetCqResultsEx(cq, result, 16);

	for (ULONG i = 0; i < count; i++) {
		switch (result[i].Type) {
		case NdkOperationTypeReceive:
		case OrielOperationTypeReceiveImmediate: break;
		default: break;
		}
	}
	NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
}

int program_main(NDK_LISTENER *listener, NDK_CQ *cq);

int program_main(NDK_LISTENER *listener, NDK_CQ *cq)
{
	ORIEL_OPEN_PARAMETERS parameters;
	struct program program;
	struct sockaddr_in address;
	NTSTATUS status;

	memset(&parameters, 0, sizeof(parameters));
	memset(&program, 0, sizeof(program));
	memset(&address, 0, sizeof(address));
	parameters.Size = sizeof(parameters);
	address.sin_family = AF_INET;
	status = OrielOpenAdapter(&parameters, &program.adapter);
	if (status != STATUS_SUCCESS)
		return 1;
	status = NdkListen(listener, (PSOCKADDR)&address, sizeof(address), registered, &program);
	while (NT_SUCCESS(status) && program.token == 0) {
		status = OrielWait(program.adapter, -1);
		OrielProgress(program.adapter);
		drain(cq);
	}
	OrielCloseAdapter(program.adapter);
	return OrielStatusName(status)[0] == 'S';
}
