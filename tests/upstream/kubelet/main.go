// Plays the kubelets of two nodes: says of every pod that it runs and is ready,
// and removes pods that are being deleted. There are no containers. Pods with
// an image `:404`, the tests' name for one that does not exist, stay Pending.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

var ctx = context.Background()

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	nodes := []string{"node-1", "node-2"}
	for _, name := range nodes {
		must(register(client, name))
	}

	// A resync tries again what a conflict or an absent namespace has refused.
	factory := informers.NewSharedInformerFactory(client, time.Second)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { tell(client, pod.(*core.Pod)) },
		UpdateFunc: func(_, pod any) { tell(client, pod.(*core.Pod)) },
	})
	must(err)
	factory.Start(ctx.Done())
	for {
		for _, name := range nodes {
			if err := renew(client, name); err != nil {
				log.Printf("lease of %s: %v", name, err)
			}
		}
		time.Sleep(5 * time.Second)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func register(client kubernetes.Interface, name string) error {
	room := core.ResourceList{
		core.ResourceCPU:              resource.MustParse("64"),
		core.ResourceMemory:           resource.MustParse("256Gi"),
		core.ResourceEphemeralStorage: resource.MustParse("256Gi"),
		core.ResourcePods:             resource.MustParse("500"),
	}
	_, err := client.CoreV1().Nodes().Create(ctx, &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
		}},
		Status: core.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Addresses:   []core.NodeAddress{{Type: core.NodeInternalIP, Address: "127.0.0.1"}},
			Conditions: []core.NodeCondition{{
				Type:   core.NodeReady,
				Status: core.ConditionTrue,
				Reason: "KubeletReady",
			}},
		},
	}, meta.CreateOptions{})
	return err
}

func renew(client kubernetes.Interface, name string) error {
	leases := client.CoordinationV1().Leases(core.NamespaceNodeLease)
	lease, err := leases.Get(ctx, name, meta.GetOptions{})
	if errors.IsNotFound(err) {
		lease, err = leases.Create(ctx, &coordination.Lease{
			ObjectMeta: meta.ObjectMeta{Name: name},
			Spec: coordination.LeaseSpec{
				HolderIdentity:       &name,
				LeaseDurationSeconds: ptr.To(int32(40)),
			},
		}, meta.CreateOptions{})
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = ptr.To(meta.NowMicro())
	_, err = leases.Update(ctx, lease, meta.UpdateOptions{})
	return err
}

var addresses int

func tell(client kubernetes.Interface, pod *core.Pod) {
	pods := client.CoreV1().Pods(pod.Namespace)
	var err error
	switch {
	case pod.Spec.NodeName == "":
	case pod.DeletionTimestamp != nil:
		err = pods.Delete(ctx, pod.Name, meta.DeleteOptions{
			GracePeriodSeconds: ptr.To(int64(0)),
			Preconditions:      meta.NewUIDPreconditions(string(pod.UID)),
		})
	case pod.Status.Phase == core.PodPending && !strings.HasSuffix(pod.Spec.Containers[0].Image, ":404"):
		pod = pod.DeepCopy()
		run(&pod.Status, pod.Spec.Containers)
		_, err = pods.UpdateStatus(ctx, pod, meta.UpdateOptions{})
	}
	if err != nil && !errors.IsNotFound(err) && !errors.IsConflict(err) {
		log.Printf("pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
}

func run(status *core.PodStatus, containers []core.Container) {
	addresses++
	now := meta.Now()
	status.Phase = core.PodRunning
	status.StartTime = &now
	status.HostIP = "127.0.0.1"
	status.HostIPs = []core.HostIP{{IP: status.HostIP}}
	status.PodIP = fmt.Sprintf("10.%d.%d.%d", addresses>>16&255, addresses>>8&255, addresses&255)
	status.PodIPs = []core.PodIP{{IP: status.PodIP}}
	for _, kind := range []core.PodConditionType{core.PodInitialized, core.ContainersReady, core.PodReady} {
		status.Conditions = append(status.Conditions, core.PodCondition{
			Type: kind, Status: core.ConditionTrue, LastTransitionTime: now,
		})
	}
	for _, container := range containers {
		status.ContainerStatuses = append(status.ContainerStatuses, core.ContainerStatus{
			Name:    container.Name,
			Image:   container.Image,
			Ready:   true,
			Started: ptr.To(true),
			State:   core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: now}},
		})
	}
}
