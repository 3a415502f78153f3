// Package sample is a small program with tests on the dev server.
package sample

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// ReadyPods lists the pods that are ready and stay.
func ReadyPods(ctx context.Context, client kubernetes.Interface, namespace, selector string) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var ready []corev1.Pod
	for _, pod := range list.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue &&
				pod.DeletionTimestamp == nil {
				ready = append(ready, pod)
			}
		}
	}
	return ready, nil
}

// Renew deletes each pod, and waits for its successor before it continues.
func Renew(ctx context.Context, client kubernetes.Interface, namespace, selector string) error {
	pods, err := ReadyPods(ctx, client, namespace, selector)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if err := client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			now, err := ReadyPods(ctx, client, namespace, selector)
			return len(now) >= len(pods), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
